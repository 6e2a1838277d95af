"""kcard ask, serve and serve-key."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from kcard.cli.options import command_for
from kcard.cli.output import console, echo, late_counter, note, print_json, resumable, worded_counter
from kcard.cluster import RayOptions
from kcard.errors import UsageError
from kcard.integrators.options import AskOptions
from kcard.serve.options import EndpointOptions
from kcard.text import split_sentences
from kcard.types import Answer, Citation, Passage, Source

if TYPE_CHECKING:
    from kcard.integrators.batch_files import QuestionTotals
    from kcard.integrators.pipeline import Pipeline
    from kcard.types import Question

__all__ = ["register", "show"]


# An answer as a person reads it.

SCORES = ("relevance", "faithfulness", "factuality")
SHOWN = 240  # characters of a passage
BEGINNING = 8  # words of a sentence that the answer has already
MARK = re.compile(r"^[-*•]\s+")  # before an item of a list
CONSTANT = ("always", "never")  # gates whose score says nothing


def show(answer: Answer, trace: bool = False, streamed: bool = False) -> None:
    """Print the answer, where it comes from, what was decided, and the passages whose scores tell something.

    With `trace` all passages stand there in full, with their evidence. `streamed`: the answer was printed already.
    """
    out = console()
    if not streamed:
        letter = f"{answer.choice}. " if answer.choice else ""
        out.print(f"[bold]{escape(letter + answer.answer)}[/bold]")
    for line in dict.fromkeys(_cited(citation, answer) for citation in _distinct(answer)):
        out.print(line, soft_wrap=True)
    if answer.nearest is not None:
        place = _place(answer.nearest)
        where = escape(f" ({place})") if place else ""
        out.print(f'nearest passage: "{_around(answer.nearest, answer.passages)}"{where}', soft_wrap=True)
    out.print(_decided(answer), markup=False, soft_wrap=True)
    if trace:
        for passage in answer.passages:
            out.print()
            for line in _in_full(passage):
                out.print(line, soft_wrap=True)
    elif scored := [p for p in answer.passages if _tells(p)]:
        out.print(_table(scored))


def _decided(answer: Answer) -> str:
    """How sure the answer is, what the gate decided, and what it took, on one line."""
    if not answer.known:
        sure = "no answer found · "
    else:
        sure = "" if answer.confidence is None else f"confidence {answer.confidence:.2f} · "
    gate = answer.gate.name if answer.gate.name in CONSTANT else f"{answer.gate.name} {answer.gate.score:.2f}"
    calls = f"{answer.calls} LLM call{'' if answer.calls == 1 else 's'}"
    return (
        f"{sure}{'cards used' if answer.gate.fired else 'no cards used'} (gate: {gate}) · {answer.mode} · {calls}"
        f"{_tokens(answer)} · {answer.seconds:.2f} s"
    )


def _tells(p: Passage) -> bool:
    """Whether a passage's scores tell something: those of a quotation from the card's own corpus do not."""
    return p.source is None or p.factuality is not None


def _table(passages: Sequence[Passage]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "card", "wrote"):
        table.add_column(heading, overflow="fold")
    scores = [name for name in SCORES if any(getattr(p, name) is not None for p in passages)]
    for heading in scores:
        table.add_column(heading, justify="right", no_wrap=True)
    for p in passages:
        mark = "[green]kept[/green]" if p.kept else "[dim]dropped[/dim]"
        table.add_row(
            mark, escape(_writer(p)), escape(_shortened(p)), *(_number(getattr(p, name)) for name in scores)
        )
    return table


def _shortened(p: Passage) -> str:
    """On one line, a long passage cut: the whole of it is in the trace."""
    text = " ".join(p.text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN].rpartition(' ')[0]} …"


def _around(nearest: Source, passages: Sequence[Passage]) -> str:
    """What comes nearest, marked in as much of its passage as is shown of one, in markup."""
    said = " ".join(nearest.text.split())
    for passage in passages:
        line = " ".join(passage.text.split())
        at = line.find(said)
        if at >= 0:
            end, room = at + len(said), max(0, SHOWN - len(said)) // 2
            begin, stop = max(0, at - room), min(len(line), end + room)
            before = line[begin:at] if not begin else f"… {line[begin:at].partition(' ')[2]}"
            after = line[end:stop] if stop == len(line) else f"{line[end:stop].rpartition(' ')[0]} …"
            return f"{escape(before)}[bold]{escape(said)}[/bold]{escape(after)}"
    return escape(nearest.text)


def _distinct(answer: Answer) -> list[Citation]:
    """The citations, of whole sentences out of one passage the first."""
    text = " ".join(answer.answer.split())
    first: dict[object, Citation] = {}
    for at, citation in enumerate(answer.citations):
        whole = citation.passage is not None and not citation.quote and len(answer.citations) > 1
        repeats = whole and " ".join(citation.sentence.split()) in text
        first.setdefault(citation.passage if repeats else (at,), citation)
    return list(first.values())


def _cited(citation: Citation, answer: Answer) -> str:
    """From what is said to the card and the line: `"Kuiper found Miranda." <- moons (retrieval) <- a.md:3`, in markup.

    A few words stand in their sentence; of whole sentences, which the answer has already, only the beginning is
    printed again, and nothing where all come from one passage.
    """
    said = citation.sentence
    if citation.passage is None:
        return escape(f'"{said}" <- no kept passage')
    passage = answer.passages[citation.passage]
    support = "" if citation.support >= 1 else f", support {_number(citation.support)}"
    steps = [escape(f"{passage.card} ({'retrieval' if passage.source else 'model'}{support})")]
    source = passage.source or passage.evidence
    if place := _place(source and replace(source, line=citation.line or source.line)):
        steps.append(escape(place))
    if quotation := _quotation(citation, passage, answer):
        steps.insert(0, quotation)
    return " <- ".join(["", *steps] if not quotation else steps).lstrip()


def _quotation(citation: Citation, passage: Passage, answer: Answer) -> str:
    """The sentence of the passage that holds what was said, with those words marked, or the beginning of what was
    said; empty where the answer has it all, from one passage."""
    said = " ".join(citation.sentence.split())
    text = passage.text if passage.pruned is None else passage.pruned
    for sentence in [citation.quote] if citation.quote else split_sentences(text):
        line = MARK.sub("", " ".join(sentence.split()))
        at = line.lower().find(said.lower())
        if at >= 0 and len(line) > len(said) + 1:
            end = at + len(said)
            return f'"{escape(line[:at])}[bold]{escape(line[at:end])}[/bold]{escape(line[end:])}"'
    if said not in " ".join(answer.answer.split()):
        return escape(f'"{said}"')
    alone = len({other.passage for other in answer.citations}) == 1
    beginning = said.split()[:BEGINNING]
    cut = " …" if len(beginning) < len(said.split()) else ""
    return "" if alone else escape(f'"{" ".join(beginning)}{cut}"')


def _writer(p: Passage) -> str:
    return f"{p.card} (retrieval)" if p.source is not None else p.card


def _place(source: Source | None) -> str:
    if source is None or not source.file:
        return ""
    return f"{source.file}:{source.line}" + (f", {source.section}" if source.section else "")


def _in_full(p: Passage) -> list[str]:
    lines = [f"[{'green' if p.kept else 'dim'}]{'kept' if p.kept else 'dropped'}[/] {escape(p.card)}"]
    lines.append(f"  wrote         {escape(p.text)}")
    if p.source is not None:
        lines.append(f"  found in      {escape(_place(p.source) or 'its index')}")
    if p.pruned is not None and p.pruned != p.text:
        lines.append(f"  pruned to     {escape(p.pruned)}")
    lines += [f"  {name:<12}  {_number(getattr(p, name))}" for name in SCORES]
    if p.evidence is not None:
        place = _place(p.evidence)
        where = f" ({escape(place)})" if place else ""
        lines.append(f"  evidence      {escape(p.evidence.text)}{where}")
    return lines


def _tokens(answer: Answer) -> str:
    used = answer.usage
    known = used is not None and used.tokens_in is not None
    return f" · {used.tokens_in} + {used.tokens_out} tokens" if used and known else ""


def _number(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


def _register_ask(app: typer.Typer) -> None:
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
    from kcard.types import Question, checked, choices_of

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
    from kcard.integrators.batch_files import answer_file, earlier_lines, read_questions

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
    from kcard.integrators.batch_files import ask_on_cluster

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


# kcard serve: an OpenAI-compatible endpoint, and the keys of its users.


def _register_serve(app: typer.Typer) -> None:
    app.command()(serve)
    app.command("serve-key")(serve_key)


@command_for(AskOptions, EndpointOptions)
def serve(given: dict[str, Any]) -> None:
    """Serve the LLM with its cards as an OpenAI-compatible endpoint; Ctrl-C stops it."""
    from kcard.serve.app import serve as run

    names = EndpointOptions.__dataclass_fields__
    endpoint = EndpointOptions(**{name: value for name, value in given.items() if name in names})
    asking = AskOptions(**{name: value for name, value in given.items() if name not in names})
    if endpoint.keys is None and endpoint.host not in {"127.0.0.1", "::1", "localhost"}:
        note(f"note: {endpoint.host} can be reached from elsewhere, and no key is needed (--keys)")
    run(asking, endpoint, lambda address: echo(f"serving on {address}/v1"))


def serve_key(
    name: Annotated[str, typer.Argument(help="Holder of the key.")],
    keys: Annotated[Path, typer.Option(help="The file of keys; created if it is missing.")],
) -> None:
    """Add an API key to a file for `kcard serve --keys`, and print it; it is shown only once."""
    from kcard.serve.auth import add_key

    echo(add_key(keys.expanduser(), name))
    note(f"{name} can use it at once; `kcard serve --keys {keys}` reads the file again when it changes")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    _register_ask(app)
    _register_serve(app)
