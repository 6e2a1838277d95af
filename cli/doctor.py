"""kcard doctor: what is there, and whether a bare `kcard ask` would work."""

import typer

from kcard.cli.defaults import default_map
from kcard.cli.output import Json, console, print_json
from kcard.config import settings
from kcard.errors import UsageError

__all__ = ["register"]

MARKS = {"ok": "[green]ok[/green]", "warning": "[yellow]warning[/yellow]", "error": "[red]error[/red]"}


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(json_: Json = False) -> None:
    """Check models, machine, hub, endpoints and settings; exit code 1 if a bare `kcard ask` would fail."""
    from dataclasses import asdict

    from rich.markup import escape

    from kcard.api.doctor import doctor as examine
    from kcard.api.finding import Finding

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
