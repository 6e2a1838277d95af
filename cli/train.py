"""kcard train, train-many, study and sync."""

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.study import study as study_verb
from kcard.api.sync import Foreseen, Synced
from kcard.api.sync import sync as sync_verb
from kcard.api.train import ONE_CARD, estimate_training, train_many
from kcard.api.train import train as verb
from kcard.cli.options import command_for
from kcard.cli.output import Json, console, echo, late_counter, note, print_json, progress, resumable, table
from kcard.cluster import RayOptions
from kcard.config import launch, settings
from kcard.errors import KcardError, TrainingInterrupted, UsageError
from kcard.training.execution import Execution
from kcard.training.options import TrainOptions
from kcard.training.progress import duration
from kcard.training.workers import dismiss, follow_launcher

if TYPE_CHECKING:
    from kcard.cards.card import Card
    from kcard.training.study_writer import StudyTotals
    from kcard.types import Source

__all__ = ["register"]


EXAM = {"exam", "exam_evidence"}
PATHS = {"corpus", "output", "exam_evidence"}


def _register_train(app: typer.Typer) -> None:
    app.command()(train)


@command_for(verb, TrainOptions)
def train(
    given: dict[str, Any],
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file with these options, dashes as underscores; flags win."),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Print what training would take, in memory and time, and stop.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the card and its exam as JSON.")] = False,
) -> None:
    """Train a card on a corpus."""
    options = given if config is None else _with_config(ctx, given, config)
    rank, count, _ = launch()
    place = Execution(options["device"], processes=count)
    if rank > 0:
        follow_launcher(place)
        return
    if estimate:
        _show_estimate(options, json_)
        return
    try:
        with progress() as report:
            card = verb(**options, report=report)
    except TrainingInterrupted as stop:
        note(f"kcard: {stop}")
        sys.exit(130)
    if count > 1 and "processes" not in card.manifest.training.hyperparameters:
        dismiss(place)
    _show(card, json_)


def _with_config(ctx: typer.Context, options: dict[str, Any], path: Path) -> dict[str, Any]:
    """Fill in what the config file says where no flag was given."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--config {path} can't be read: {error}") from error
    for key, value in given.items():
        if key not in options:
            raise UsageError(
                f"{path}: unknown option {key!r} of train: choose one of {', '.join(sorted(options))}"
            )
        source = ctx.get_parameter_source(key)
        if source is None or source.name != "COMMANDLINE":
            options[key] = Path(value) if key in PATHS else value
    return options


def _show_estimate(options: dict[str, Any], as_json: bool) -> None:
    with progress() as report:
        of_training = {name: value for name, value in options.items() if name not in EXAM}
        found = estimate_training(**of_training, report=report)
    if as_json:
        print_json(found.as_data())
    else:
        echo("\n".join(found.sentences()))


def _show(card: "Card", as_json: bool) -> None:
    """The card's folder, and what its exam says."""
    from kcard.cli.exam import as_data, summary
    from kcard.evaluation.exam import advice
    from kcard.evaluation.records import read_exam
    from kcard.evaluation.retention import read_forgetting

    shown: dict[str, Any] = {"card": card.manifest.name, "folder": str(card.folder)}
    if (exam := read_exam(card.folder)) is not None:
        shown["exam"] = as_data(exam)
        note(summary(exam))
        if advised := advice(exam):
            note(advised)
    if (forgotten := read_forgetting(card.folder)) is not None:
        shown["update"] = asdict(forgotten)
    if as_json:
        print_json(shown)
    else:
        echo(str(card.folder))


# kcard train-many: a card of each of many corpora.


def _register_train_many(app: typer.Typer) -> None:
    app.command("train-many")(train_each)


@command_for(verb, TrainOptions, RayOptions, leave_out={"corpus", *ONE_CARD})
def train_each(
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


# kcard study: material for a card to learn from, written by an LLM.


def _register_study(app: typer.Typer) -> None:
    app.command()(study)


@command_for(study_verb)
def study(given: dict[str, Any], json_: Json = False) -> None:
    """Have an LLM write questions and statements about a corpus for `kcard train --study`."""
    with late_counter("writing") as progress:
        found = study_verb(**given, report=note, progress=progress)
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


# kcard sync: a card is brought up to date with its folder.

SHOWN = 10  # passages of a kind
LONG = 90  # characters of a passage


def _register_sync(app: typer.Typer) -> None:
    app.command()(sync)


@command_for(sync_verb)
def sync(
    given: dict[str, Any],
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on: sync again whenever the folder has changed, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            help="With --watch: seconds between looks at the folder, and without a change before a sync."
        ),
    ] = 2.0,
    json_: Json = False,
) -> None:
    """Bring a card up to date with its folder: learn what was added, forget what was removed."""
    try:
        with progress() as report:
            if watch:
                _watch(given, interval, json_, report)
            else:
                found = sync_verb(**given, report=report)
    except TrainingInterrupted as stop:
        note(f"kcard: {stop}")
        sys.exit(130)
    if not watch:
        _show_sync(found, json_)


def _watch(given: dict[str, Any], interval: float, as_json: bool, report: Any) -> None:
    from kcard.api.sync import watch

    def failed(error: KcardError) -> None:
        note(f"kcard: {error}")

    note(f"watching {given['folder']}; Ctrl-C ends it")
    try:
        watch(
            **given,
            interval=interval,
            done=lambda found: _show_sync(found, as_json),
            failed=failed,
            report=report,
        )
    except TrainingInterrupted:
        raise
    except KeyboardInterrupt:
        note(f"stopped watching {given['folder']}")


def _show_sync(found: Synced, as_json: bool) -> None:
    if as_json:
        print_json(_data(found))
        return
    changes = found.changes
    for sign, sources in (("+", changes.added), ("-", changes.removed)):
        _list(sources, sign)
    _list_changed(changes.changed)
    for was, now in changes.renamed.items():
        echo(f"> {was} is {now}")
    for held in changes.held:
        echo(f"! {held.file}: {held.passages} passages kept: {held.reason}")
    echo(
        f"{found.card}: {len(changes.added)} added, {len(changes.changed)} changed, {len(changes.removed)} removed, "
        f"{changes.moved} moved; passages in all: {len(changes.corpus.passages)}"
    )
    if found.refused:
        note(found.refused)
    if found.foreseen is not None:
        echo(_expected(found.foreseen))
    if found.record is None or found.folder is None:
        return
    if found.record.recall is not None:
        note(found.record.recall.summary())
    echo(f"{found.version or found.folder}, {found.record.way} in {found.record.seconds:.0f} s")


def _expected(foreseen: Foreseen) -> str:
    if foreseen.way == "indexed":
        return "a sync would index the passages again"
    if foreseen.way == "continued":
        return "a sync would go on from the model's weights"
    why = f": {foreseen.why}" if foreseen.why else ""
    last = "" if foreseen.seconds is None else f" (last time {duration(foreseen.seconds)})"
    return f"a sync would train the model from scratch{last}{why}"


def _list(sources: "Sequence[Source]", sign: str) -> None:
    for source in sources[:SHOWN]:
        echo(f"{sign} {_line(source)}")
    if len(sources) > SHOWN:
        echo(f"{sign} … and {len(sources) - SHOWN} more")


def _list_changed(pairs: "Sequence[tuple[Source, Source]]") -> None:
    """Each passage before and after, where they differ."""
    for old, new in pairs[:SHOWN]:
        letters = zip(_one_line(old), _one_line(new), strict=False)
        at = next((place for place, (was, now) in enumerate(letters) if was != now), 0)
        echo(f"~ {_line(old, at)}\n  {_line(new, at)}")
    if len(pairs) > SHOWN:
        echo(f"~ … and {len(pairs) - SHOWN} more")


def _line(source: "Source", at: int = 0) -> str:
    """Where the passage stands, and of a long one the part that holds character `at`."""
    text, start = _one_line(source), 0 if at < LONG // 2 else at - LONG // 2
    shown = ("…" if start else "") + text[start : start + LONG] + ("…" if len(text) > start + LONG else "")
    return f"{source.file}:{source.line}  {shown}"


def _one_line(source: "Source") -> str:
    return " ".join(source.text.split())


def _data(found: Synced) -> dict[str, Any]:
    changes = found.changes
    return {
        "card": found.card,
        "folder": None if found.folder is None else str(found.folder),
        "version": found.version or None,
        "refused": found.refused or None,
        "foreseen": None if found.foreseen is None else asdict(found.foreseen),
        "passages": {"before": changes.before, "now": len(changes.corpus.passages)},
        "added": [_place(source) for source in changes.added],
        "removed": [_place(source) for source in changes.removed],
        "changed": [{"before": _place(old), "after": _place(new)} for old, new in changes.changed],
        "moved": changes.moved,
        "renamed": dict(changes.renamed),
        "held": [asdict(held) for held in changes.held],
        "sync": None if found.record is None else asdict(found.record),
    }


def _place(source: "Source") -> dict[str, Any]:
    return {"file": source.file, "line": source.line, "text": source.text}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    _register_train(app)
    _register_train_many(app)
    _register_study(app)
    _register_sync(app)
