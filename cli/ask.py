"""kcard ask: answer a question, or the questions of a file."""

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from kcard.cli.options import LongCommand, command_for
from kcard.cli.output import (
    WordWriter,
    console,
    note,
    notice,
    print_json,
    print_words,
    progress,
    resumable,
    show_note,
)
from kcard.cluster import RayOptions
from kcard.config import ENDPOINTS, settings, without_shortcut
from kcard.display import (
    SCORES,
    Quotation,
    footer,
    headline,
    nearest_quotation,
    number,
    place,
    quotations,
    summary,
)
from kcard.errors import UsageError
from kcard.events import Event, OnEvent
from kcard.integrators.options import AskOptions, PresetOption
from kcard.questions import checked, choices_of
from kcard.types import Answer, Passage, Question

if TYPE_CHECKING:
    from kcard.integrators.pipeline import Pipeline
    from kcard.interfaces import LLM

# An answer as a person reads it.


def show(answer: Answer, trace: bool = False, streamed: bool = False, llm: str = "") -> None:
    """Print the answer, its numbered sources, warnings about what they do not support, and a line of figures.

    trace     print all passages in full, with their scores and evidence, and why some were dropped
    streamed  the answer itself was printed already
    llm       which LLM answered
    """
    out = console()
    if not streamed:
        print_words(f"[bold]{escape(headline(answer))}[/bold]")
    is_terminal = sys.stdout.isatty()
    # The sources, then the sentences that have none.
    sources, warnings = [], []
    for line, has_source in dict.fromkeys(map(_citation_line, quotations(answer))):
        if has_source:
            sources.append(line)
        else:
            warnings.append(line)
    numbered = []
    for count, line in enumerate(sources, start=1):
        numbered.append(f"\\[{count}] {line}")
    nearest = nearest_quotation(answer)
    if nearest is not None:
        line = f'nearest passage: "{_emphasized(nearest)}"'
        for step in nearest.steps:
            line += escape(f" ({step})")
        numbered.append(line)
    for lines in (numbered, warnings):
        if lines and is_terminal:
            out.print()
        for line in lines:
            print_words(line, SOURCE_INDENT)
    # The figures: a few, or with a trace all of them.
    figures = summary(answer) if trace else footer(answer)
    if llm:
        figures = f"{llm} · {figures}"
    if is_terminal:
        out.print()
    print_words(f"[dim]{escape(figures)}[/dim]")
    if trace:
        for passage in answer.passages:
            out.print()
            _print_passage(passage)


SOURCE_INDENT = 4  # columns before the second line of a source
PASSAGE_INDENT = 16  # columns before the text of a passage in a trace


def _print_passage(p: Passage) -> None:
    """Print a passage of a trace: whether and why it was kept or dropped, its text, scores and evidence."""
    heading = "[green]kept[/]" if p.kept else "[dim]dropped[/]"
    heading += f" {escape(p.card)}"
    if p.reason:
        heading += f": {escape(p.reason)}"
    print_words(heading)
    lines = [("text", p.text)]
    if p.source is not None:
        lines.append(("found in", place(p.source) or "its index"))
    if p.pruned is not None and p.pruned != p.text:
        lines.append(("pruned to", p.pruned))
    lines.append(("scores", ", ".join(f"{name} {number(getattr(p, name))}" for name in SCORES)))
    if p.evidence is not None and (p.source is None or p.evidence.text != p.text):
        evidence, at = p.evidence.text, place(p.evidence)
        if at:
            evidence += f" ({at})"
        lines.append(("evidence", evidence))
    for name, text in lines:
        print_words(f"  {name:<12}  {escape(text)}", PASSAGE_INDENT)


def _emphasized(quotation: Quotation) -> str:
    """Return the sentence with what matters in bold, as markup."""
    before, cited, after = map(escape, (quotation.before, quotation.cited, quotation.after))
    if not cited:
        return before
    return f"{before}[bold]{cited}[/bold]{after}"


COLOURS = {"supported": "default", "contradicted": "red", "not in the cards": "yellow"}


def _citation_line(quotation: Quotation) -> tuple[str, bool]:
    """Trace a quotation to its card and line: `"Kuiper found Miranda." <- moons (retrieval) <- a.md:3`, as markup; what
    no passage supports, and what one contradicts, is a warning in a colour. Return also whether it has a source."""
    quoted = warning = ""
    if quotation.sentence:
        quoted = f'"{_emphasized(quotation)}"'
    if quotation.warning:
        warning = f"[bold {COLOURS[quotation.verdict]}]warning:[/] {escape(quotation.warning)}"
    line = quotation.line_of(quoted, [*map(escape, quotation.steps)], warning).removeprefix("<- ")
    scores = []
    for name, value in quotation.scores:
        # A quotation from the card's own corpus is faithful to it in any case.
        if quotation.is_generated or name == "factuality":
            scores.append(f"{name} {number(value)}")
    if scores:
        line += escape(f" ({', '.join(scores)})")
    return line, bool(quotation.steps)


@command_for(AskOptions, PresetOption, RayOptions)
def ask(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="The question, in quotation marks or as several words; - reads it from stdin. Without one, `kcard "
            "chat` begins on a terminal.",
            metavar="QUESTION",
        ),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="A folder or file to answer from. Its index is kept as a draft, which is brought up to date whenever "
            "the files have changed."
        ),
    ] = None,
    choices: Annotated[
        list[str] | None,
        typer.Option(
            help='Options of a multiple-choice question: "Rome; Paris" or "A=Rome; B=Paris"; or one at a time, '
            "repeated.",
            rich_help_panel="One question",
        ),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Print the answer as it arrives. [default: on a terminal]",
            rich_help_panel="One question",
        ),
    ] = None,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Questions: one JSON object per line, or .csv.",
            rich_help_panel="Files of questions",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="File for the answers to --input.", rich_help_panel="Files of questions"),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Questions of --input per batch. [default: 16, or 4 times --concurrency if that is more; where large "
            "cards take turns, as many as 256 MB of passages allow]",
            rich_help_panel="Files of questions",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Resume: ask questions that are missing in --output or failed.",
            rich_help_panel="Files of questions",
        ),
    ] = False,
    *,
    values: dict[str, Any],
    trace: Annotated[bool, typer.Option(help="Print every passage in full, with its evidence.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")] = False,
) -> None:
    """Ask a question; the gate decides whether cards help."""
    question = " ".join(words or ()) or None
    if question == "-" or (question is None and input_ is None and not sys.stdin.isatty()):
        question = sys.stdin.read().strip() or None
    if question is None and input_ is None and sys.stdin.isatty() and sys.stdout.isatty() and not json_:
        from kcard.cli.chat import talk

        RayOptions.pop_from(values)
        talk(answering_from(corpus, AskOptions(**values)))
        return
    if (question is None) == (input_ is None):
        raise UsageError("give one question, or --input FILE with --output FILE")
    if (input_ is None) != (output is None):
        raise UsageError("--input and --output go together")
    if input_ is not None and output is not None and input_.resolve() == output.resolve():
        raise UsageError(f"--output {output} is the input file: name another, or the questions would be lost")
    if input_ is not None and choices:
        raise UsageError("--choices goes with one question; in --input, each row has its own `choices`")
    cluster = RayOptions.pop_from(values)
    options = AskOptions(**values)
    if input_ is not None and output is not None:
        options = answering_from(corpus, options)
        _ask_file(input_, output, options, cluster, resume, batch)
        return
    if cluster is not None:
        raise UsageError("--ray needs --input and --output: a single question is answered on this machine")
    if resume:
        raise UsageError("--resume needs --input and --output")
    if batch:
        raise UsageError("--batch needs --input and --output")
    if question is None:
        return
    options = answering_from(corpus, options)
    # A single --choices lists all options; where it is repeated, each is one option.
    listed: str | list[str] | None = choices
    if choices and len(choices) == 1:
        listed = choices[0]
    checked_question = checked(Question(question, choices_of(listed)))
    if stream is None:
        stream = sys.stdout.isatty()
    streamed = stream and not json_
    pipeline = _pipeline(options, show_note, is_shown=not json_)
    llm = llm_name(options)
    if streamed:
        answer, _ = print_stream(pipeline, checked_question)
    else:
        answer = next(pipeline.answers([checked_question]))
    for text in answer.notes:
        notice(text)
    if json_:
        print_json(answer.to_json())
    else:
        show(answer, trace, streamed, llm)
        advice = _advice(options)
        if advice:
            note(f"note: the reader quotes; {advice}")
    from kcard.question_log import log_answer

    problem = log_answer(answer, values["llm"], "ask")
    if problem:
        notice(problem)


def answering_from(corpus: Path | None, options: AskOptions) -> AskOptions:
    """Return the options with the index of a corpus, if one is named, among the cards."""
    if corpus is None:
        return options
    from kcard.api.corpus_card import with_corpus

    with progress(notice) as on_event:
        return with_corpus(options, corpus, on_event)


def _pipeline(options: AskOptions, on_event: OnEvent, is_shown: bool = False) -> "Pipeline":
    """Make the pipeline, and say which LLM answers.

    is_shown  the answer will be shown with its LLM, so that only one that is asked over the network is named before
    """
    from kcard.integrators.pipeline import Pipeline

    pipeline = Pipeline(options, on_event=on_event)
    if not is_shown or _llm_spec(options).partition(":")[0] in ENDPOINTS:
        announce(pipeline.llm, options)
    return pipeline


def announce(llm: "LLM", options: AskOptions) -> None:
    """Say which LLM answers and, where nobody chose one, how to get one that writes sentences."""
    if llm.announcement:
        notice("; ".join(filter(None, (llm.announcement, _advice(options)))))


def _llm_spec(options: AskOptions) -> str:
    """Return the LLM as it is named in options, such as local:qwen2.5-0.5b."""
    llm = settings().llm if options.llm is None else options.llm
    if isinstance(llm, str):
        return without_shortcut(llm)[0]
    return type(llm).__name__


def llm_name(options: AskOptions) -> str:
    """Return the LLM's name as a line of figures shows it."""
    spec = _llm_spec(options)
    backend, _, model = spec.partition(":")
    if spec == "embedded":
        return "embedded reader"
    if backend == "gguf":
        return Path(model).stem
    return model or backend


def _advice(options: AskOptions) -> str:
    """Return how to get an LLM that writes sentences, where nobody chose one; otherwise nothing."""
    if options.llm is not None or "llm" in settings().found:
        return ""
    from kcard.llms.local_models import suggestion

    return suggestion()


def print_stream(
    pipeline: "Pipeline", question: Question, until_it_begins: AbstractContextManager[None] | None = None
) -> tuple[Answer, float | None]:
    """Print the answer as it arrives. Return it, and the seconds until its first piece; None if there was only one.

    until_it_begins  entered until the first piece is there
    """
    started = time.perf_counter()
    pieces = pipeline.stream(question)
    with until_it_begins or nullcontext():
        piece = next(pieces)
    seconds = time.perf_counter() - started
    writer = WordWriter()
    count = 0
    try:
        while isinstance(piece, str):
            count += 1
            writer.write(piece)
            piece = next(pieces)
    finally:
        if count:
            writer.end()
    if count < 2:
        return piece, None
    return piece, seconds


def _ask_file(
    source: Path,
    target: Path,
    options: AskOptions,
    cluster: RayOptions | None,
    resume: bool,
    batch: int | None,
) -> None:
    """Answer the questions of a file, here or on a Ray cluster; exit code 1 where some failed."""
    from kcard.integrators.batch_files import answer_file, ask_on_cluster, earlier_lines, read_questions

    if cluster is not None:
        with resumable("answers", target), progress() as on_event:
            count, totals = ask_on_cluster(
                source, target, options, cluster=cluster, resume=resume, batch=batch, on_event=on_event
            )
        answered = count - totals.failed
    else:
        rows = read_questions(source)
        count = len(rows)
        earlier = earlier_lines(rows, target, resume)
        done = sum("error" not in line for line in earlier)
        if done:
            note(f"{done} of {count} questions are already answered")
        with resumable("answers", target), progress(notice) as show:
            done_now = done

            def on_event(event: Event) -> None:
                """Show questions and, where cards take turns, the cards that have generated, in one bar."""
                nonlocal done_now
                if event.kind == "cards":
                    words = f"{event.done} of {event.total} cards have generated"
                    event = Event("asking", words, done_now, count)
                elif event.kind == "asking":
                    done_now = event.done
                show(event)

            pipeline = _pipeline(options, on_event)
            size = batch or pipeline.batch
            totals = answer_file(rows, target, pipeline.outcomes, on_event, earlier, size)
        answered = done + totals.answered
    usage = f"{totals.calls} LLM calls"
    if totals.tokens_in:
        usage += f", {totals.tokens_in} + {totals.tokens_out} tokens"
    note(f"{answered} of {count} questions answered: {target} ({usage})")
    if totals.failed:
        sys.exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=LongCommand)(ask)
