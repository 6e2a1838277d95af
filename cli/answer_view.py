"""An answer as a person reads it."""

import re
from collections.abc import Sequence
from dataclasses import replace

from rich.markup import escape
from rich.table import Table

from kcard.answer import Answer, Citation, Passage, Source
from kcard.cli.output import console
from kcard.sentences import split

__all__ = ["show"]

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
    for sentence in [citation.quote] if citation.quote else split(text):
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
