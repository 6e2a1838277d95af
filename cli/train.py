"""kcard train. The options of `train` are the arguments of kcard.train, read from its signature."""

import inspect
import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.cli.output import note, print_json, training_progress
from kcard.errors import TrainingInterrupted, UsageError

if TYPE_CHECKING:
    from kcard.cards.folder import Card
    from kcard.evaluation.forgetting import Forgetting
    from kcard.training.progress import Report

__all__ = ["register"]

NOT_OPTIONS = {"report"}
PATHS = {"corpus", "output", "exam_evidence"}
# A name of a card or a folder: on the command line simply a word.
WORDS = {"update"}


def register(app: typer.Typer) -> None:
    app.command(name="train", help="Train a card on a corpus.")(_command())


def _command() -> Callable[..., None]:
    """A command with the signature of kcard.train; the help texts are those of its docstring."""
    from kcard.training.train import train

    helps = _argument_helps(inspect.getdoc(train) or "")
    shared = [
        _option(name, _typed(name, parameter.annotation), parameter.default, helps[name])
        for name, parameter in inspect.signature(train).parameters.items()
        if name not in NOT_OPTIONS
    ]
    own = [
        _option(
            "config", Path | None, None, "A TOML file with these options, dashes as underscores; flags win."
        ),
        _option(
            "exam",
            bool | None,
            None,
            "Ask the card what it knows after training (default: if it has a model).",
        ),
        _option(
            "exam_evidence", Path | None, None, "Independent text to measure factuality against in the exam."
        ),
        _option("json", bool, False, "Print the card and its exam as JSON."),
    ]

    def command(ctx: typer.Context, **options: Any) -> None:
        _train(_with_config(ctx, options))

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *shared, *own]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _typed(name: str, annotation: Any) -> Any:
    """The type of an option: the command line knows no unions of types."""
    return Path | None if name in PATHS else str | None if name in WORDS else annotation


def _option(name: str, kind: Any, default: Any, text: str) -> inspect.Parameter:
    default = None if default is inspect.Parameter.empty else default
    flag = "--" + name.replace("_", "-")
    # A default that the help text explains in words is not shown twice.
    shown = default is not None and not isinstance(default, bool)
    both_ways = kind == bool | None
    option = typer.Option(f"{flag}/--no-{flag[2:]}" if both_ways else flag, help=text, show_default=shown)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _argument_helps(docstring: str) -> dict[str, str]:
    """The two-column list of arguments in a docstring: a name, two spaces or more, its text."""
    helps: dict[str, str] = {}
    name = ""
    for line in docstring.splitlines():
        if entry := re.fullmatch(r"(\w+) {2,}(\S.*)", line):
            name = entry.group(1)
            helps[name] = entry.group(2)
        elif name and line.startswith("  "):
            helps[name] += " " + line.strip()
        else:
            name = ""
    return helps


def _with_config(ctx: typer.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Fill in what the config file says where no flag was given."""
    path = options.pop("config")
    if path is None:
        return options
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--config {path} can't be read: {error}") from error
    for key, value in given.items():
        if key not in options:
            raise UsageError(f"{path}: {key!r} is no option of train; known are {', '.join(sorted(options))}")
        source = ctx.get_parameter_source(key)
        if source is None or source.name != "COMMANDLINE":
            options[key] = Path(value) if key in PATHS else value
    return options


def _train(options: dict[str, Any]) -> None:
    from kcard.training.train import train

    with_exam, evidence, as_json = options.pop("exam"), options.pop("exam_evidence"), options.pop("json")
    if options["corpus"] is None:
        raise UsageError("--corpus is missing: name a file or folder of documents or tables")
    if evidence is not None:
        from kcard.selectors.evidence.registry import open_evidence

        open_evidence(str(evidence))  # before hours of training, not after
    forgotten = None
    try:
        with training_progress() as report:
            if options["update"] is None or with_exam is False:
                card = train(**options, report=report)
            else:
                card, forgotten = _update(options, report)
    except TrainingInterrupted as stop:
        note(f"kcard: {stop}")
        sys.exit(130)
    if with_exam is None:
        with_exam = card.manifest.has_model
    if with_exam and options["update"] is not None and card.manifest.evidence == "hashes":
        note("no exam: its questions need the text of all passages, and only hashes of the old ones travel")
        with_exam = False
    asked = {"evidence": evidence or (), **_text_of(card, options)} if with_exam else None
    _finish(card, asked, forgotten, as_json)


def _update(options: dict[str, Any], report: "Report") -> "tuple[Card, Forgetting | None]":
    """The next version of a card; what it forgot is told."""
    from kcard.evaluation.forgetting import update

    given = {key: value for key, value in options.items() if key not in {"corpus", "update"}}
    card, forgotten = update(options["update"], options["corpus"], report=report, **given)
    if forgotten is not None:
        note(forgotten.summary())
    return card, forgotten


def _text_of(card: "Card", options: dict[str, Any]) -> dict[str, Any]:
    """Where the exam finds the text to ask about, if it does not travel with the card."""
    return {key: options[key] for key in ("corpus", "field")} if card.manifest.evidence == "hashes" else {}


def _finish(
    card: "Card", asked: dict[str, Any] | None, forgotten: "Forgetting | None", as_json: bool
) -> None:
    """The exam, unless it was not wanted, and what is printed of a card."""
    shown: dict[str, Any] = {"card": card.manifest.name, "folder": str(card.folder)}
    if asked is not None:
        from kcard.cli.exam import as_data, exam_progress, summary
        from kcard.evaluation.advice import advice
        from kcard.evaluation.exam import exam as examine

        with exam_progress() as report:
            result = examine(card.folder, **asked, report=report)
        shown["exam"] = as_data(result)
        note(summary(result))
        if told := advice(result):
            note(told)
    if forgotten is not None:
        shown["update"] = asdict(forgotten)
    if as_json:
        print_json(shown)
    else:
        typer.echo(str(card.folder))
