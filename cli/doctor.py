"""kcard doctor and selectors."""

from typing import TYPE_CHECKING

import typer

from kcard.cli.options import default_map
from kcard.cli.output import Json, console, note, print_json
from kcard.config import settings
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.selectors.checkpoints import ListedSelector, Readiness

__all__ = ["register"]


MARKS = {"ok": "[green]ok[/green]", "warning": "[yellow]warning[/yellow]", "error": "[red]error[/red]"}


def _register_doctor(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(json_: Json = False) -> None:
    """Check models, machine, hub, endpoints and settings; exit code 1 if a bare `kcard ask` would fail."""
    from dataclasses import asdict

    from rich.markup import escape

    from kcard.api.doctor import Finding
    from kcard.api.doctor import doctor as examine

    checks = examine()
    if checks[0].status != "error" and (problem := _misconfigured()):
        checks[0] = Finding("config", "error", problem, "correct the file or the variable")
    well = all(check.status != "error" for check in checks)
    if json_:
        print_json({"ok": well, "checks": [asdict(check) for check in checks]})
    for check in () if json_ else checks:
        remedy = f" [dim]→ {escape(check.remedy)}[/dim]" if check.remedy else ""
        out = f"{MARKS[check.status]:<24} {check.name:<13} {escape(check.found)}{remedy}"
        console().print(out, soft_wrap=True)
    if not well:
        raise typer.Exit(1)


def _misconfigured() -> str:
    """What is wrong with the tables of the config files, which only the command line reads."""
    try:
        default_map(settings())
    except UsageError as error:
        return str(error)
    return ""


# kcard selectors: the presets, every selector there is, what it reads, and whether that is on this machine.

COMMIT = 40  # characters; 12 tell commits apart


def _register_selectors(app: typer.Typer) -> None:
    app.command()(selectors)


def selectors(json_: Json = False) -> None:
    """List the presets of `kcard ask --selectors` and every selector, with model, revision, licence and size."""
    from dataclasses import asdict

    from kcard.selectors.checkpoints import presets
    from kcard.selectors.checkpoints import selectors as registered

    found, ready = registered(), presets()
    if json_:
        rows = [asdict(r.preset) | {"missing": list(r.missing), "ready": not r.missing} for r in ready]
        print_json({"presets": rows, "selectors": [asdict(entry) for entry in found]})
        return
    console().print(_presets(ready))
    console().print(_selectors(found))
    note("missing models are downloaded from the Hugging Face Hub on first use")


def _presets(found: "list[Readiness]") -> object:
    from rich.table import Table

    table = Table("preset", "relevance", "pruner", "checker", "what", "on this machine", box=None)
    for one in found:
        preset = one.preset
        missing = f"[yellow]no: {', '.join(one.missing)}[/yellow]" if one.missing else "[green]yes[/green]"
        table.add_row(preset.name, preset.relevance, preset.pruner, preset.checker, preset.about, missing)
    return table


def _selectors(found: "list[ListedSelector]") -> object:
    from rich.table import Table

    table = Table("kind", "name", box=None)
    table.add_column("model", no_wrap=True)
    for column in ("revision", "licence", "size", "here", "needs"):
        table.add_column(column)
    here = {True: "[green]yes[/green]", False: "no", None: "-"}
    for e in found:
        revision = e.revision[:12] if len(e.revision) == COMMIT else e.revision
        row = (e.kind, e.name, e.model or "-", revision, e.licence, e.size, here[e.here], e.needs)
        table.add_row(*row)
    return table


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    _register_doctor(app)
    _register_selectors(app)
