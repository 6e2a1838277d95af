"""kcard ask: one question, or a file of them."""

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kcard.answer import Answer
from kcard.cli.output import counter, note, print_json
from kcard.errors import UsageError

__all__ = ["register"]

CARDS = "Cards to use: names, references (name@v2) or domain subtrees (biomedical/), comma-separated. [default: all]"
EVIDENCE = "What passages are checked against: own (each card's sources), none, or a text file or folder. Repeatable."
LLM = "Who answers: embedded, openai:MODEL, hf:MODEL. [default: as configured, else embedded]"


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=None)(ask)


def ask(
    question: Annotated[str | None, typer.Argument(help="The question.", show_default=False)] = None,
    mode: Annotated[
        Literal["top-down", "bottom-up", "direct"], typer.Option(help="How cards are used.")
    ] = "top-down",
    select: Annotated[Literal["auto", "explicit"], typer.Option(help="How top-down picks a card.")] = "auto",
    cards: Annotated[str | None, typer.Option(help=CARDS, show_default=False)] = None,
    llm: Annotated[str | None, typer.Option(help=LLM, show_default=False)] = None,
    llm_url: Annotated[str | None, typer.Option(help="URL of an OpenAI-compatible endpoint.")] = None,
    gate: Annotated[
        str, typer.Option(help="Whether cards are needed: self-ask, always, never.")
    ] = "self-ask",
    evidence: Annotated[list[str] | None, typer.Option(help=EVIDENCE, show_default="own")] = None,
    n1: Annotated[int, typer.Option("--n1", help="Documents that each card writes.")] = 3,
    n2: Annotated[int, typer.Option("--n2", help="Documents that relevance keeps (bottom-up).")] = 5,
    n3: Annotated[int, typer.Option("--n3", help="Documents that factuality keeps (bottom-up).")] = 3,
    temperature: Annotated[float, typer.Option(help="Temperature of the LLM.")] = 0.1,
    card_temperature: Annotated[float, typer.Option(help="Temperature of the cards.")] = 0.1,
    card_tokens: Annotated[int, typer.Option(help="Longest document, in tokens.")] = 100,
    max_iterations: Annotated[int, typer.Option(help="Rounds of top-down.")] = 1,
    examples: Annotated[
        Path | None, typer.Option(help="In-context examples (JSONL) instead of the built-in.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where cards write: cpu, cuda or cuda:N.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Seed of all sampling.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")] = False,
    trace: Annotated[bool, typer.Option(help="Print every passage in full, with its evidence.")] = False,
    input_: Annotated[Path | None, typer.Option("--input", help="Questions, one JSON object a line.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where the answers to --input go.")] = None,
) -> None:
    """Ask a question, with the cards' help where the gate sees need."""
    given = dict(locals())
    if (question is None) == (input_ is None):
        raise UsageError("give one question, or --input FILE with --output FILE")
    if (input_ is None) != (output is None):
        raise UsageError("--input and --output go together")
    if input_ is not None and output is not None and input_.resolve() == output.resolve():
        raise UsageError(f"--output {output} is the input file: name another, or the questions would be lost")
    options = {key: value for key, value in given.items() if key in _option_names()}
    options["cards"] = [c.strip() for c in cards.split(",") if c.strip()] if cards is not None else None
    options["evidence"] = evidence or ["own"]
    if input_ is not None and output is not None:
        _ask_file(input_, output, options)
    elif question is not None:
        _ask_one(question, options, json_, trace)


def _option_names() -> set[str]:
    from kcard.pipeline import Pipeline

    return set(inspect.signature(Pipeline).parameters)


def _pipeline(options: dict[str, Any]) -> Any:
    from kcard.pipeline import Pipeline

    pipeline = Pipeline(**options)
    if announcement := getattr(pipeline.llm, "announcement", None):
        note(f"note: {announcement}")
    return pipeline


def _ask_one(question: str, options: dict[str, Any], as_json: bool, trace: bool) -> None:
    if not question.strip():
        raise UsageError("the question is empty")
    answer: Answer = _pipeline(options)([question])[0]
    for text in answer.notes:
        note(f"note: {text}")
    if as_json:
        print_json(answer.to_json())
        return
    from kcard.cli.answer_view import show

    show(answer, trace)


def _ask_file(source: Path, target: Path, options: dict[str, Any]) -> None:
    from kcard.batch import answer_file, read_questions

    rows = read_questions(source)
    pipeline = _pipeline(options)
    with counter("asking", len(rows)) as report:
        failures = answer_file(rows, target, pipeline, report)
    note(f"{len(rows) - failures} of {len(rows)} questions answered: {target}")
    if failures:
        sys.exit(1)
