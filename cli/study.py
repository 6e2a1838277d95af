"""kcard study: material for a card to learn from, written by an LLM."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from kcard.api.study import study as verb
from kcard.cli.command import command_for
from kcard.cli.output import Json, console, echo, late_counter, note, print_json, table

if TYPE_CHECKING:
    from kcard.training.study.writing import StudyTotals

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command()(study)


@command_for(verb)
def study(given: dict[str, Any], json_: Json = False) -> None:
    """Have an LLM write questions and statements about a corpus for `kcard train --study`."""
    with late_counter("writing") as progress:
        found = verb(**given, report=note, progress=progress)
    if json_:
        print_json(asdict(found))
    else:
        _print(found, str(given["output"]))
    if found.asked.failed:
        note(f"{found.asked.failed:,} requests failed ({found.asked.why}): repeat the command with --force")
        sys.exit(1)


def _print(found: "StudyTotals", output: str) -> None:
    rows = table("items", output, right={"items"})
    for kind, count in found.items.items():
        rows.add_row(f"{count:,}", kind)
    for why, count in found.left_out.items():
        rows.add_row(f"{count:,}", f"left out: {why}")
    console().print(rows)
    echo(
        f"{found.asked.made:,} requests, {found.asked.kept:,} replies from before; "
        f"{found.asked.tokens_in:,} tokens read, {found.asked.tokens_out:,} written"
    )
