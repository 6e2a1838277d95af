"""kcard ask: one question, or a file of them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kcard.answer import Answer
from kcard.cli.command import command_for
from kcard.cli.output import echo, late_counter, note, print_json, resumable, worded_counter
from kcard.cluster import RayOptions
from kcard.errors import UsageError
from kcard.integrators.options import AskOptions

if TYPE_CHECKING:
    from kcard.integrators.batch import QuestionTotals
    from kcard.integrators.pipeline import Pipeline
    from kcard.question import Question

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=None)(ask)


@command_for(AskOptions, RayOptions)
def ask(
    given: dict[str, Any],
    question: Annotated[str | None, typer.Argument(help="The question.", show_default=False)] = None,
    choices: Annotated[
        list[str] | None,
        typer.Option(
            help='Options of a multiple-choice question: "Rome; Paris" or "A=Rome; B=Paris"; or one at a time, '
            "repeated.",
            show_default=False,
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")] = False,
    trace: Annotated[bool, typer.Option(help="Print every passage in full, with its evidence.")] = False,
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Print the answer as it arrives. [default: on a terminal]"),
    ] = None,
    input_: Annotated[
        Path | None, typer.Option("--input", help="Questions: one JSON object per line, or .csv.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File for the answers to --input.")] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Questions of --input that are asked together. [default: 16, or 4 for each request at a time; where "
            "large cards take turns, as many as 256 MB of passages allow]",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume: ask questions that are missing in --output or failed.")
    ] = False,
) -> None:
    """Ask a question; the gate decides whether cards help to answer it."""
    if (question is None) == (input_ is None):
        raise UsageError("give one question, or --input FILE with --output FILE")
    if (input_ is None) != (output is None):
        raise UsageError("--input and --output go together")
    if input_ is not None and output is not None and input_.resolve() == output.resolve():
        raise UsageError(f"--output {output} is the input file: name another, or the questions would be lost")
    if input_ is not None and choices:
        raise UsageError("--choices goes with one question; in --input, each row has its own `choices`")
    cluster = RayOptions.taken_from(given)
    options = AskOptions(**given)
    if input_ is not None and output is not None and cluster is not None:
        _ask_on_cluster(input_, output, options, cluster, resume, batch)
    elif input_ is not None and output is not None:
        _ask_file(input_, output, options, resume, batch)
    elif cluster is not None:
        raise UsageError("--ray needs --input and --output: one question is asked here")
    elif resume or batch:
        raise UsageError(f"--{'resume' if resume else 'batch'} needs --input and --output")
    elif question is not None:
        streamed = sys.stdout.isatty() if stream is None else stream
        _ask_one(_question(question, choices), options, json_, trace, streamed and not json_)


def _question(text: str, choices: list[str] | None) -> "Question":
    """One value of --choices holds them all, of several each is one option."""
    from kcard.choices import choices_of
    from kcard.question import Question, checked

    return checked(Question(text, choices_of(choices[0] if choices and len(choices) == 1 else choices)))


def _pipeline(options: AskOptions, progress: Callable[[int, int], object] | None = None) -> "Pipeline":
    from kcard.integrators.pipeline import Pipeline

    pipeline = Pipeline(options, report=lambda text: note(f"note: {text}"), progress=progress)
    if announcement := getattr(pipeline.llm, "announcement", None):
        note(f"note: {announcement}")
    return pipeline


def _ask_one(question: "Question", options: AskOptions, as_json: bool, trace: bool, streamed: bool) -> None:
    pipeline = _pipeline(options)
    answer: Answer = _streamed(pipeline, question) if streamed else pipeline([question])[0]
    for text in answer.notes:
        note(f"note: {text}")
    if as_json:
        print_json(answer.to_json())
        return
    from kcard.cli.answer_view import show

    show(answer, trace, streamed)


def _streamed(pipeline: Any, question: "Question") -> Any:
    """Print the answer as it arrives; return it."""
    begun = False
    try:
        for piece in pipeline.stream(question):
            if not isinstance(piece, str):
                return piece
            echo(piece, nl=False)
            sys.stdout.flush()
            begun = True
    finally:
        if begun:
            echo()


def _ask_file(source: Path, target: Path, options: AskOptions, resume: bool, batch: int | None) -> None:
    from kcard.integrators.batch import answer_file, earlier_lines, read_questions

    rows = read_questions(source)
    earlier = earlier_lines(rows, target, resume)
    done = sum("error" not in line for line in earlier)
    if done:
        note(f"{done} of {len(rows)} questions are already answered")
    progress = _Progress()
    pipeline = _pipeline(options, progress.cards)
    size = batch or pipeline.batch
    with resumable("answers", target), worded_counter("asking", len(rows)) as progress.update:
        totals = answer_file(rows, target, pipeline.outcomes, progress.answered, earlier, size)
    note(f"{done + totals.answered} of {len(rows)} questions answered: {target} ({_cost(totals)})")
    if totals.failed:
        sys.exit(1)


def _ask_on_cluster(
    source: Path, target: Path, options: AskOptions, cluster: RayOptions, resume: bool, batch: int | None
) -> None:
    from kcard.integrators.batch import ask_on_cluster

    with resumable("answers", target), late_counter("asking") as report:
        count, totals = ask_on_cluster(
            source, target, options, cluster=cluster, resume=resume, batch=batch, report=report
        )
    note(f"{count - totals.failed} of {count} questions answered: {target} ({_cost(totals)})")
    if totals.failed:
        sys.exit(1)


@dataclass
class _Progress:
    """How many questions are answered and, in a batch whose cards take turns, how many cards have written."""

    update: Callable[[int, str], object] = lambda *_: None
    done: int = 0

    def answered(self, done: int) -> None:
        self.done = done
        self.update(done, "")

    def cards(self, done: int, total: int) -> None:
        self.update(self.done, f"{done} of {total} cards have written")


def _cost(totals: "QuestionTotals") -> str:
    tokens = f", {totals.tokens_in} + {totals.tokens_out} tokens" if totals.tokens_in else ""
    return f"{totals.calls} LLM calls{tokens}"
