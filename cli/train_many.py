"""kcard train-many: a card of each of many corpora."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kcard.api.train import ONE_CARD, train_many
from kcard.api.train import train as one
from kcard.cli.command import command_for
from kcard.cli.output import Json, late_counter, note, print_json, resumable
from kcard.cluster import RayOptions
from kcard.config import settings
from kcard.training.options import TrainOptions

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("train-many")(train)


@command_for(one, TrainOptions, RayOptions, leave_out={"corpus", *ONE_CARD})
def train(
    given: dict[str, Any],
    corpora: Annotated[
        Path,
        typer.Argument(
            help="A folder with a sub-folder for each corpus; or a table (.csv, .tsv, .jsonl) with the columns corpus "
            "and, if wanted, name, description, domain, licence, language, knowledge_date.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for the cards' folders. [default: drafts under the kcard home]"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume: train the cards that are not finished or failed.")
    ] = False,
    json_: Json = False,
) -> None:
    """Train a card of each of many corpora, one after the other or on a Ray cluster."""
    from rich.markup import escape

    from kcard.cli.output import console, table

    cluster = RayOptions.taken_from(given)
    options = {name: value for name, value in given.items() if value is not None}
    with resumable("cards", output or settings().drafts), late_counter("training") as report:
        found = train_many(corpora, output=output, resume=resume, cluster=cluster, progress=report, **options)
    shown = table("card", "recall", "folder", right={"recall"})
    for row in found:
        if json_:
            print_json({key: value for key, value in row.items() if key != "options"})
        elif "error" in row:
            note(f"{row['card']}: {row['error']}")
        else:
            recall = "-" if row["recall"] is None else f"{row['recall']:.2f}"
            shown.add_row(escape(row["card"]), recall, escape(row["folder"]))
    if shown.rows:
        console().print(shown)
    if failed := sum("error" in row for row in found):
        note(f"{failed} of {len(found)} cards failed; try them again with --resume")
        sys.exit(1)
