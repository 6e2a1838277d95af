"""kcard study: material for a card to learn from, written by an LLM."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from kcard.api.study import study as verb
from kcard.cli.command import command_for
from kcard.cli.output import Json, echo, late_counter, note, print_json

if TYPE_CHECKING:
    from kcard.training.study.writing import StudyTotals

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(study)


@command_for(verb)
def study(given: dict[str, Any], json_: Json = False) -> None:
    """Have an LLM write questions and statements about a corpus for `kcard train --study`."""
    with late_counter("asking") as progress:
        found = verb(**given, report=note, progress=progress)
    if json_:
        print_json(asdict(found))
    else:
        _print(found, str(given["output"]))


def _print(found: "StudyTotals", output: str) -> None:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.items.items()) or "nothing"
    echo(f"{output}: {kinds}")
    if found.left_out:
        echo(f"left out: {', '.join(f'{why} {count:,}' for why, count in found.left_out.items())}")
    echo(
        f"{found.asked.made:,} requests, {found.asked.kept:,} replies from before; "
        f"{found.tokens_in:,} tokens read, {found.tokens_out:,} written"
    )
    if found.asked.failed:
        note(f"{found.asked.failed:,} requests failed ({found.asked.why}): repeat the command with --force")
