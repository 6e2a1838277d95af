"""kcard export: cards as an existing engine runs them."""

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
    """Write what vLLM, SGLang, llama.cpp or Ollama needs to run cards, with their prompts and fingerprints."""
    found = verb(**given, report=note)
    if json_:
        print_json(asdict(found) | {"folder": str(found.folder)})
    else:
        echo(f"{found.folder}: run `sh {found.script}` there; README.md shows how the cards are asked")
