"""kcard selectors: the presets, every selector there is, what it reads, and whether that is on this machine."""

from typing import TYPE_CHECKING

import typer

from kcard.cli.output import Json, console, note, print_json

if TYPE_CHECKING:
    from kcard.selectors.listing import ListedSelector, Readiness

__all__ = ["register"]

COMMIT = 40  # characters; 12 tell commits apart


def register(app: typer.Typer) -> None:
    app.command()(selectors)


def selectors(json_: Json = False) -> None:
    """List the presets of `kcard ask --selectors` and every selector, with model, revision, licence and size."""
    from dataclasses import asdict

    from kcard.selectors.listing import presets
    from kcard.selectors.listing import selectors as registered

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
