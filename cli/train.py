"""kcard train: a corpus becomes a card."""

import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.api.train import estimate_training
from kcard.api.train import train as verb
from kcard.cli.command import command_for
from kcard.cli.output import echo, note, print_json, progress
from kcard.config import launch
from kcard.errors import TrainingInterrupted, UsageError
from kcard.training.execution import Execution
from kcard.training.following import dismiss, follow_launcher
from kcard.training.options import TrainOptions

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card

__all__ = ["register"]

EXAM = {"exam", "exam_evidence"}
PATHS = {"corpus", "output", "exam_evidence"}


def register(app: typer.Typer) -> None:
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
    from kcard.evaluation.advice import advice
    from kcard.evaluation.forgetting import read_forgetting
    from kcard.evaluation.record import read_exam

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
