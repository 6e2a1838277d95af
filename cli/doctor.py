"""kcard doctor and selectors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from kcard.cli.options import default_map
from kcard.cli.output import Json, console, echo, note, print_json
from kcard.config import settings
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.api.doctor import Finding

MARKS = {"ok": "[green]ok[/green]", "warning": "[yellow]warning[/yellow]", "error": "[red]error[/red]"}


def doctor(json_: Json = False) -> None:
    """Check whether a bare `kcard ask` can answer.

    Exit code 1 if it can't: models, machine, hub, endpoints and settings are checked.
    """
    from dataclasses import asdict

    from rich.markup import escape

    from kcard.api.doctor import Finding
    from kcard.api.doctor import doctor as run_checks

    checks = run_checks()
    # Only the command line reads the tables of the config files, so the API can't check them.
    if checks[0].status != "error":
        try:
            default_map(settings())
        except UsageError as error:
            checks[0] = Finding("config", "error", str(error), "correct the file or the variable")
    is_ok = all(check.status != "error" for check in checks)
    if json_:
        print_json({"ok": is_ok, "checks": [asdict(check) for check in checks]})
    else:
        echo(_verdict(checks))
        for check in checks:
            line = f"{MARKS[check.status]:<24} {check.name:<13} {escape(check.found)}"
            if check.remedy:
                line += f" [dim]→ {escape(check.remedy)}[/dim]"
            console().print(line, soft_wrap=True)
    if not is_ok:
        raise typer.Exit(1)


def _verdict(checks: "Sequence[Finding]") -> str:
    """Return in a line whether a question can be asked, and what is in the way if not."""
    errors, warnings = [], []
    for check in checks:
        if check.status == "error" and check.name != "ask":  # which sums up the others
            errors.append(check.name)
        elif check.status == "warning":
            warnings.append(check.name)
    if errors:
        things = "1 thing needs" if len(errors) == 1 else f"{len(errors)} things need"
        return f"{things} you before `kcard ask` can answer: {', '.join(errors)}"
    if warnings:
        return f"everything is ready (worth a look: {', '.join(warnings)})"
    return "everything is ready"


# kcard selectors: the presets and every selector, with the model it needs and whether that is on this machine.

COMMIT_CHARACTERS = 40  # of which 12 tell commits apart


def selectors(json_: Json = False) -> None:
    """List the selectors and the presets of `kcard ask`. Each has its model, revision, licence and size."""
    from dataclasses import asdict

    from kcard.selectors.checkpoints import presets
    from kcard.selectors.checkpoints import selectors as registered

    entries, readiness = registered(), presets()
    if json_:
        rows = []
        for one in readiness:
            rows.append(asdict(one.preset) | {"missing": list(one.missing), "ready": not one.missing})
        print_json({"presets": rows, "selectors": [asdict(entry) for entry in entries]})
        return
    from rich.table import Table

    table = Table("preset", "relevance", "pruner", "checker", "what", "on this machine", box=None)
    for one in readiness:
        preset = one.preset
        missing = f"[yellow]no: {', '.join(one.missing)}[/yellow]" if one.missing else "[green]yes[/green]"
        table.add_row(preset.name, preset.relevance, preset.pruner, preset.checker, preset.about, missing)
    console().print(table)

    table = Table("kind", "name", box=None)
    table.add_column("model", no_wrap=True)
    for column in ("revision", "licence", "size", "here", "needs"):
        table.add_column(column)
    here = {True: "[green]yes[/green]", False: "no", None: "-"}
    for e in entries:
        revision = e.revision
        if len(revision) == COMMIT_CHARACTERS:
            revision = revision[:12]
        row = (e.kind, e.name, e.model or "-", revision, e.licence, e.size, here[e.here], e.needs)
        table.add_row(*row)
    console().print(table)
    note("missing models are downloaded from the Hugging Face Hub on first use")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(doctor)
    app.command()(selectors)
