"""kcard train-many: a card of each of many corpora."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.train import train as one
from kcard.api.train_many import NOT_SHARED, train_many
from kcard.bulk.options import RayOptions
from kcard.cli.cluster import cluster_of, finished_kept
from kcard.cli.command import command_for
from kcard.cli.output import Json, late_counter, note, print_json
from kcard.training.options import TrainOptions

if TYPE_CHECKING:
    from kcard.bulk.piece import Outcome

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("train-many")(train)


@command_for(one, TrainOptions, RayOptions, leave_out={"corpus", *NOT_SHARED})
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
    from kcard.api.eval_asking import Told

    cluster = cluster_of(given)
    options = {name: value for name, value in given.items() if value is not None}
    with finished_kept("cards"), late_counter("training") as report:
        told = Told(progress=report)
        found = train_many(corpora, output=output, resume=resume, cluster=cluster, told=told, **options)
    failed = sum(bool(outcome.error) for outcome in found)
    _print(found, json_)
    if failed:
        note(f"{failed} of {len(found)} cards failed; try them again with --resume")
        sys.exit(1)


def _print(found: "tuple[Outcome, ...]", as_json: bool) -> None:
    from kcard.cli.output import console, table

    if as_json:
        for outcome in found:
            print_json({"card": outcome.key} | (outcome.result or {"error": outcome.error}))
        return
    from rich.markup import escape

    shown = table("card", "recall", "folder", right={"recall"})
    for outcome in found:
        if outcome.error:
            note(f"{outcome.key}: {outcome.error}")
            continue
        recall, folder = outcome.result["recall"], outcome.result["folder"]
        shown.add_row(escape(outcome.key), "-" if recall is None else f"{recall:.2f}", escape(folder))
    if shown.rows:
        console().print(shown)
