"""kcard train, train-many and sync."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.sync import SyncResult
from kcard.api.sync import sync as sync_card
from kcard.api.sync import watch as watch_folder
from kcard.api.train import ONE_CARD, train_many
from kcard.api.train import train as train_card
from kcard.cli.options import LongCommand, command_for
from kcard.cli.output import (
    Json,
    as_data,
    cell,
    console,
    echo,
    note,
    note_interruption,
    print_json,
    progress,
    resumable,
    table,
    without_bars,
)
from kcard.cluster import RayOptions
from kcard.config import launch, settings
from kcard.errors import TrainingInterrupted, UsageError
from kcard.training.execution import Execution, dismiss, follow_launcher
from kcard.training.options import TrainOptions
from kcard.training.run import duration

if TYPE_CHECKING:
    from kcard.types import Source

EXAM = {"exam", "exam_evidence"}


@command_for(train_card, TrainOptions)
def train(
    values: dict[str, Any],
    ctx: typer.Context,
    folder: Annotated[Path | None, typer.Argument(help="The corpus, as --corpus takes it.")] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print the memory and time that training would take, and exit.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Do not ask for a description: use the proposed one.",
            rich_help_panel="The card",
        ),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the card and its exam as JSON.")] = False,
) -> None:
    """Train a card on a corpus."""
    # The corpus, as an argument or an option.
    if folder is not None:
        source = ctx.get_parameter_source("corpus")
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"the corpus is named twice, {folder} and --corpus {values['corpus']}: give one")
        values["corpus"] = folder
    # Under a launcher such as torchrun, only rank 0 runs the command; the others take part in its training.
    rank, count, _ = launch()
    execution = Execution(values["device"], processes=count)
    if rank > 0:
        if not estimate:
            follow_launcher(execution)
        return
    if estimate:
        from kcard.training.train import estimate as estimate_training

        with progress() as on_event:
            training_values = {name: value for name, value in values.items() if name not in EXAM}
            needs = estimate_training(**training_values, on_event=on_event)
        if json_:
            print_json(needs.as_data())
        else:
            echo("\n".join(needs.sentences()))
        return
    try:
        if not yes and not json_ and sys.stdin.isatty() and sys.stderr.isatty():
            values["confirm_description"] = _confirm
        with progress() as on_event:
            card = train_card(**values, on_event=on_event)
    except TrainingInterrupted as stop:
        note_interruption(f"kcard: {stop}")
        sys.exit(130)
    if count > 1 and "processes" not in card.manifest.training.hyperparameters:
        dismiss(execution)

    # The card's folder and what its exam says.
    from kcard.cli.exam import as_data, has_enough_questions, summary
    from kcard.evaluation.exam import advise_on_kind
    from kcard.evaluation.records import read_exam
    from kcard.evaluation.retention import read_forgetting

    data: dict[str, Any] = {
        "card": card.manifest.name,
        "folder": str(card.folder),
        "left_out": dict(card.manifest.training.left_out),
    }
    exam = read_exam(card.folder)
    if exam is not None:
        data["exam"] = as_data(exam)
        note(summary(exam))
        hint = advise_on_kind(exam)
        if hint and has_enough_questions(exam):
            note(hint)
    forgetting = read_forgetting(card.folder)
    if forgetting is not None:
        data["update"] = asdict(forgetting)
    if json_:
        print_json(data)
    else:
        echo(str(card.folder))
        name = card.manifest.name
        if card.folder == settings().drafts / name:
            note(f'next: `kcard ask "..." --cards {name}`; `kcard publish {name}` puts it in the hub')
        else:
            note(f'next: `kcard publish {card.folder}`, then `kcard ask "..." --cards {name}`')


def _confirm(proposed: str) -> str:
    """Ask for the card's description; Enter takes the proposed one."""
    with without_bars():
        note(f"description: {proposed}")
        try:
            return str(
                typer.prompt(
                    "Enter to use it, or another one, by which questions find the card",
                    default=proposed,
                    show_default=False,
                    err=True,
                )
            )
        except typer.Abort:
            raise KeyboardInterrupt from None


# kcard train-many: a card for each of many corpora.


@command_for(train_card, TrainOptions, RayOptions, leave_out={"corpus", *ONE_CARD})
def train_each(
    values: dict[str, Any],
    corpora: Annotated[
        Path,
        typer.Argument(
            help="A folder with a sub-folder for each corpus; or a table (.csv, .tsv, .jsonl) with the columns corpus "
            "and optionally name, description, domain, licence, language, knowledge_date."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the cards' folders. [default: drafts under the kcard home]",
            rich_help_panel="The card",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume: train the cards that are not finished or failed.")
    ] = False,
    json_: Json = False,
) -> None:
    """Train a card on each of many corpora. They are trained one after another, or on a Ray cluster."""
    from rich.markup import escape

    cluster = RayOptions.pop_from(values)
    options = {name: value for name, value in values.items() if value is not None}
    with resumable("cards", output or settings().drafts), progress() as on_event:
        rows = train_many(
            corpora, output=output, resume=resume, cluster=cluster, on_event=on_event, **options
        )
    columns = table("card", "recall", "folder", right={"recall"})
    failed = 0
    for row in rows:
        failed += "error" in row
        if json_:
            print_json({key: value for key, value in row.items() if key != "options"})
        elif "error" in row:
            note(f"{row['card']}: {row['error']}")
        else:
            columns.add_row(escape(row["card"]), cell(row["recall"], ".2f"), escape(row["folder"]))
    if columns.rows:
        console().print(columns)
    if failed:
        note(f"{failed} of {len(rows)} cards failed; try them again with --resume")
        sys.exit(1)


# kcard sync: brings a card up to date with its folder.

MAX_LISTED_PASSAGES = 10  # of a kind
MAX_PASSAGE_CHARACTERS = 90


@command_for(sync_card)
def sync(
    values: dict[str, Any],
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Keep running: sync again whenever the folder has changed, until Ctrl-C."
        ),
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            help="With --watch: seconds between checks of the folder, and without a change before a sync starts."
        ),
    ] = 2.0,
    json_: Json = False,
) -> None:
    """Bring a card up to date with its folder. It learns what was added and forgets what was removed."""
    try:
        with progress() as on_event:
            if not watch:
                result = sync_card(**values, on_event=on_event)
            else:
                note(f"watching {values['folder']}; press Ctrl-C to stop")
                try:
                    watch_folder(
                        **values,
                        interval=interval,
                        done=lambda result: _print_sync(result, json_),
                        failed=lambda error: note(f"kcard: {error}"),
                        on_event=on_event,
                    )
                except TrainingInterrupted:
                    raise
                except KeyboardInterrupt:
                    note(f"stopped watching {values['folder']}")
    except TrainingInterrupted as stop:
        note_interruption(f"kcard: {stop}")
        sys.exit(130)
    if not watch:
        _print_sync(result, json_)


def _print_sync(result: SyncResult, as_json: bool) -> None:
    """Print the passages that were added, removed and changed, and what became of the card."""
    changes = result.changes
    if as_json:
        data = {
            "card": result.card,
            "folder": result.folder and str(result.folder),
            "version": result.version or None,
            "refused": result.refused or None,
            "foreseen": as_data(result.foreseen),
            "passages": {"before": changes.before, "now": len(changes.corpus.passages)},
            "added": [_place(source) for source in changes.added],
            "removed": [_place(source) for source in changes.removed],
            "changed": [{"before": _place(old), "after": _place(new)} for old, new in changes.changed],
            "moved": changes.moved,
            "renamed": dict(changes.renamed),
            "held": [asdict(file) for file in changes.unread],
            "sync": as_data(result.record),
        }
        print_json(data)
        return
    for sign, sources in (("+", changes.added), ("-", changes.removed)):
        for source in sources[:MAX_LISTED_PASSAGES]:
            echo(f"{sign} {_line(source)}")
        if len(sources) > MAX_LISTED_PASSAGES:
            echo(f"{sign} … and {len(sources) - MAX_LISTED_PASSAGES} more")
    # A changed passage before and after, where the two differ.
    for old, new in changes.changed[:MAX_LISTED_PASSAGES]:
        before, after = _one_line(old), _one_line(new)
        at = 0
        while before[at : at + 1] == after[at : at + 1] != "":
            at += 1
        echo(f"~ {_line(old, at)}\n  {_line(new, at)}")
    if len(changes.changed) > MAX_LISTED_PASSAGES:
        echo(f"~ … and {len(changes.changed) - MAX_LISTED_PASSAGES} more")
    for old_name, new_name in changes.renamed.items():
        echo(f"> {old_name} is {new_name}")
    for file in changes.unread:
        echo(f"! {file.file}: {file.passages} passages kept: {file.reason}")
    echo(
        f"{result.card}: {len(changes.added)} added, {len(changes.changed)} changed, {len(changes.removed)} removed, "
        f"{changes.moved} moved; passages in all: {len(changes.corpus.passages)}"
    )
    if result.refused:
        note(result.refused)

    # With --dry-run: what a sync would do.
    foreseen = result.foreseen
    if foreseen is not None:
        line = "a sync would train the model anew"
        if foreseen.way == "indexed":
            line = "a sync would index the passages again"
        elif foreseen.seconds is not None:
            line += f" (last time {duration(foreseen.seconds)})"
        echo(line)
    if result.record is None or result.folder is None:
        return
    echo(f"{result.version or result.folder}, {result.record.way} in {result.record.seconds:.0f} s")


def _line(source: "Source", at: int = 0) -> str:
    """Return the place of a passage and its text; of a long one, the part around character `at`."""
    text = _one_line(source)
    start = max(0, at - MAX_PASSAGE_CHARACTERS // 2)
    end = start + MAX_PASSAGE_CHARACTERS
    part = text[start:end]
    if start:
        part = "…" + part
    if end < len(text):
        part += "…"
    return f"{source.file}:{source.line}  {part}"


def _one_line(source: "Source") -> str:
    return " ".join(source.text.split())


def _place(source: "Source") -> dict[str, Any]:
    return {"file": source.file, "line": source.line, "text": source.text}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(cls=LongCommand)(train)
    app.command("train-many", cls=LongCommand)(train_each)
    app.command()(sync)
