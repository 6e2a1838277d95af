"""kcard train and kcard exam. The options of `train` are the arguments of kcard.train, read from its signature."""

import inspect
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.cli.output import note, print_json, training_progress
from kcard.errors import TrainingInterrupted, UsageError

if TYPE_CHECKING:
    from kcard.cards.folder import Card

__all__ = ["register"]

NOT_OPTIONS = {"report"}
PATHS = {"corpus", "output", "evidence"}


def register(app: typer.Typer) -> None:
    app.command(name="train", help="Train a card on a corpus.")(_command())
    app.command()(exam)


def _command() -> Callable[..., None]:
    """A command with the signature of kcard.train; the help texts are those of its docstring."""
    from kcard.training.train import train

    helps = _argument_helps(inspect.getdoc(train) or "")
    shared = [
        _option(name, Path | None if name in PATHS else parameter.annotation, parameter.default, helps[name])
        for name, parameter in inspect.signature(train).parameters.items()
        if name not in NOT_OPTIONS
    ]
    own = [
        _option(
            "config", Path | None, None, "A TOML file with these options, dashes as underscores; flags win."
        ),
        _option("exam", bool, True, "Ask the card what it knows after training."),
        _option("evidence", Path | None, None, "Independent text to measure factuality against in the exam."),
        _option("json", bool, False, "Print the card and its exam as JSON."),
    ]

    def command(ctx: typer.Context, **options: Any) -> None:
        _train(_with_config(ctx, options))

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *shared, *own]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _option(name: str, kind: Any, default: Any, text: str) -> inspect.Parameter:
    default = None if default is inspect.Parameter.empty else default
    flag = "--" + name.replace("_", "-")
    # A default that the help text explains in words is not shown twice.
    shown = default is not None and not isinstance(default, bool)
    option = typer.Option(
        f"{flag}/--no-{flag[2:]}" if default is True else flag, help=text, show_default=shown
    )
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
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
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

    with_exam, evidence, as_json = options.pop("exam"), options.pop("evidence"), options.pop("json")
    if options["corpus"] is None:
        raise UsageError("--corpus is missing: name a file or folder of .txt, .md or .jsonl")
    if evidence is not None and not evidence.exists():
        raise UsageError(f"--evidence {evidence} does not exist")
    try:
        with training_progress() as report:
            card = train(**options, report=report)
    except TrainingInterrupted as stop:
        note(f"kcard: {stop}")
        sys.exit(130)
    _finish(card, evidence, with_exam, as_json)


def exam(
    card: Annotated[str, typer.Argument(help="A draft's name or a card folder.")],
    evidence: Annotated[
        Path | None, typer.Option(help="Independent text to measure factuality against.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask a card what it knows of its own corpus, in question forms never used in training."""
    from kcard.cards.folder import Card
    from kcard.config import settings

    draft = settings().drafts / card
    _finish(Card.open(draft if draft.is_dir() else Path(card)), evidence, True, json_)


def _finish(card: "Card", evidence: Path | None, with_exam: bool, as_json: bool) -> None:
    """The exam, and what is printed of a card."""
    import json

    shown: dict[str, Any] = {"card": card.manifest.name, "folder": str(card.folder)}
    if with_exam:
        from kcard.evaluation.exam import exam as examine

        result = examine(card.folder, evidence=evidence, report=note)
        shown["exam"] = json.loads(result.to_json())
        note(result.summary())
    if as_json:
        print_json(shown)
    else:
        typer.echo(str(card.folder))
