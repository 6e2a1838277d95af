"""kcard ask: one question, or a file of them."""

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kcard.answer import Answer
from kcard.cli.completion import several
from kcard.cli.output import counter, note, print_json
from kcard.cli.sizes import parse_size
from kcard.errors import UsageError

if TYPE_CHECKING:
    from kcard.integrators.batch import Totals

__all__ = ["ask", "pipeline_options", "register"]

CARDS = (
    "Cards to use: names, references (name@v2), pools (pool:NAME) or domain subtrees (biomedical/), "
    "comma-separated. [default: all]"
)
EVIDENCE = (
    "What passages are checked against: own (each card's sources), none, a file or folder, or a name such as "
    "wikipedia:de. Repeatable."
)
LLM = "Who answers: embedded, openai:MODEL, hf:MODEL. [default: as configured, else embedded]"


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=None)(ask)


def ask(
    question: Annotated[str | None, typer.Argument(help="The question.", show_default=False)] = None,
    mode: Annotated[
        Literal["top-down", "bottom-up", "hybrid", "direct"], typer.Option(help="How cards are used.")
    ] = "top-down",
    select: Annotated[
        Literal["auto", "explicit"], typer.Option(help="How the LLM picks cards: by description, by name.")
    ] = "auto",
    cards: Annotated[str | None, typer.Option(help=CARDS, show_default=False, autocompletion=several)] = None,
    llm: Annotated[str | None, typer.Option(help=LLM, show_default=False)] = None,
    llm_url: Annotated[str | None, typer.Option(help="URL of an OpenAI-compatible endpoint.")] = None,
    llm_window: Annotated[
        int | None, typer.Option(help="Tokens that the endpoint's model reads and writes at a time.")
    ] = None,
    retries: Annotated[int, typer.Option(help="How often a failing endpoint is asked again.")] = 5,
    gate: Annotated[
        str | None,
        typer.Option(
            help="Are cards needed? self-ask, self-ask-ensemble, always, never, or a fitted gate, by name or file. "
            "[default: always where --cards names some, else self-ask]",
            show_default=False,
        ),
    ] = None,
    evidence: Annotated[list[str] | None, typer.Option(help=EVIDENCE, show_default="own")] = None,
    selectors: Annotated[
        Literal["offline", "paper", "modern", "multilingual"],
        typer.Option(help="Models of the selectors: see `kcard selectors`."),
    ] = "offline",
    relevance: Annotated[
        str | None,
        typer.Option(help="What is near the question, in place of the preset's: NAME or NAME:MODEL."),
    ] = None,
    pruner: Annotated[
        str | None,
        typer.Option(help="What condenses documents, in place of the preset's: NAME or NAME:MODEL."),
    ] = None,
    checker: Annotated[
        str | None, typer.Option(help="What checks facts, in place of the preset's: NAME or NAME:MODEL.")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let a selector's model run code from its repository.")
    ] = False,
    n1: Annotated[int, typer.Option("--n1", help="Documents that each card writes.")] = 3,
    n2: Annotated[int, typer.Option("--n2", help="Documents that relevance keeps (bottom-up).")] = 5,
    n3: Annotated[int, typer.Option("--n3", help="Documents that factuality keeps (bottom-up).")] = 3,
    floor: Annotated[
        float, typer.Option(help="Relevance keeps what has this share of the best one's score (paper: 0).")
    ] = 0.75,
    min_factuality: Annotated[
        float, typer.Option(help="Leave out documents whose factuality is known to be lower (paper: 0).")
    ] = 0.0,
    temperature: Annotated[float, typer.Option(help="Temperature of the LLM.")] = 0.1,
    card_temperature: Annotated[float, typer.Option(help="Temperature of the cards.")] = 0.1,
    card_tokens: Annotated[int, typer.Option(help="Longest document, in tokens.")] = 100,
    max_iterations: Annotated[int, typer.Option(help="Rounds of top-down and hybrid.")] = 1,
    shortlist: Annotated[int, typer.Option(help="Cards that the LLM may name (--select explicit).")] = 20,
    max_cards: Annotated[int, typer.Option(help="Cards that write, if there are more (bottom-up).")] = 32,
    examples: Annotated[
        Path | None, typer.Option(help="In-context examples (JSONL) instead of the built-in.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where cards and models of selectors run: cpu, cuda or cuda:N.")
    ] = "cpu",
    memory: Annotated[
        str | None, typer.Option(help="What cards may take, such as 2GB. [default: half of the memory]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all sampling.")] = 0,
    json_: Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")] = False,
    trace: Annotated[bool, typer.Option(help="Print every passage in full, with its evidence.")] = False,
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Print the answer as it arrives. [default: on a terminal]"),
    ] = None,
    input_: Annotated[
        Path | None, typer.Option("--input", help="Questions: one JSON object a line, or .csv.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Where the answers to --input go.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with --output: ask what is missing or failed.")
    ] = False,
) -> None:
    """Ask a question, with the cards' help where the gate sees need."""
    given = dict(locals())
    if (question is None) == (input_ is None):
        raise UsageError("give one question, or --input FILE with --output FILE")
    if (input_ is None) != (output is None):
        raise UsageError("--input and --output go together")
    if input_ is not None and output is not None and input_.resolve() == output.resolve():
        raise UsageError(f"--output {output} is the input file: name another, or the questions would be lost")
    options = pipeline_options(given)
    if input_ is not None and output is not None:
        _ask_file(input_, output, options, resume)
    elif resume:
        raise UsageError("--resume goes with --input and --output")
    elif question is not None:
        streamed = sys.stdout.isatty() if stream is None else stream
        _ask_one(question, options, json_, trace, streamed and not json_)


def pipeline_options(given: dict[str, Any]) -> dict[str, Any]:
    """Those of the given options that are Pipeline's, as it wants them."""
    from kcard.integrators.pipeline import Pipeline

    known = inspect.signature(Pipeline).parameters
    options = {key: value for key, value in given.items() if key in known}
    options["evidence"] = options["evidence"] or ["own"]
    options["memory"] = None if options["memory"] is None else parse_size(options["memory"])
    return options


def _pipeline(options: dict[str, Any]) -> Any:
    from kcard.integrators.pipeline import Pipeline

    pipeline = Pipeline(**options, report=lambda text: note(f"note: {text}"))
    if announcement := getattr(pipeline.llm, "announcement", None):
        note(f"note: {announcement}")
    return pipeline


def _ask_one(question: str, options: dict[str, Any], as_json: bool, trace: bool, streamed: bool) -> None:
    if not question.strip():
        raise UsageError("the question is empty")
    pipeline = _pipeline(options)
    answer: Answer = _streamed(pipeline, question) if streamed else pipeline([question])[0]
    for text in answer.notes:
        note(f"note: {text}")
    if as_json:
        print_json(answer.to_json())
        return
    from kcard.cli.answer_view import show

    show(answer, trace, streamed)


def _streamed(pipeline: Any, question: str) -> Any:
    """Print the answer as it arrives; return it."""
    begun = False
    try:
        for piece in pipeline.stream(question):
            if not isinstance(piece, str):
                return piece
            typer.echo(piece, nl=False)
            sys.stdout.flush()
            begun = True
    finally:
        if begun:
            typer.echo()


def _ask_file(source: Path, target: Path, options: dict[str, Any], resume: bool) -> None:
    from kcard.integrators.batch import answer_file, earlier_lines, read_questions

    rows = read_questions(source)
    earlier = earlier_lines(rows, target, resume)
    done = sum("error" not in line for line in earlier)
    if done:
        note(f"{done} of {len(rows)} questions were answered before")
    pipeline = _pipeline(options)
    try:
        with counter("asking", len(rows)) as report:
            totals = answer_file(rows, target, pipeline.answers, report, earlier)
    except KeyboardInterrupt:
        note(f"interrupted: what was answered is in {target}; go on with the same command and --resume")
        sys.exit(130)
    note(f"{done + totals.answered} of {len(rows)} questions answered: {target} ({_cost(totals)})")
    if totals.failed:
        sys.exit(1)


def _cost(totals: "Totals") -> str:
    tokens = f", {totals.tokens_in} + {totals.tokens_out} tokens" if totals.tokens_in else ""
    return f"{totals.calls} LLM calls{tokens}"
