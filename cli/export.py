"""kcard export: cards as an existing engine runs them."""

import shlex
from dataclasses import asdict
from typing import Any

import typer

from kcard.api.export import export as verb
from kcard.cli.command import command_for
from kcard.cli.output import Json, echo, note, print_json

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(export)


@command_for(verb)
def export(
    given: dict[str, Any],
    json_: Json = False,
) -> None:
    """Write what vLLM or llama.cpp needs to run cards, and print the command that starts it."""
    found = verb(**given, report=note)
    if json_:
        print_json(asdict(found) | {"folder": str(found.folder)})
    else:
        note("start the engine with this command; export.json says how the cards are prompted")
        echo(f"cd {shlex.quote(str(found.folder))} && {shlex.join(found.command)}")
