"""An answer as a person reads it."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from kcard.answer import Answer, Citation, Passage, Source
from kcard.cli.output import console

__all__ = ["show"]

SCORES = ("relevance", "faithfulness", "factuality")
SHOWN = 240  # characters of a passage


def show(answer: Answer, trace: bool = False, streamed: bool = False) -> None:
    """The answer, where each of its sentences comes from, the gate's decision, and a row for each passage.

    With `trace` the passages stand there in full, with their evidence. `streamed`: the answer was printed already.
    """
    out = console()
    if not streamed:
        letter = f"{answer.choice}. " if answer.choice else ""
        out.print(f"[bold]{escape(letter + answer.answer)}[/bold]")
    if answer.nearest is not None:
        where = f" ({_place(answer.nearest)})" if _place(answer.nearest) else ""
        out.print(f'nearest passage: "{answer.nearest.text}"{where}', markup=False, soft_wrap=True)
    out.print(
        f"{_sure(answer)}gate {escape(answer.gate.name)} {answer.gate.score:.2f} "
        f"-> {'cards were used' if answer.gate.fired else 'no card was used'}"
        f" · {answer.mode} · {answer.calls} LLM calls{_tokens(answer)} · {answer.seconds:.2f} s"
    )
    for citation in answer.citations:
        out.print(_cited(citation, answer.passages), markup=False, soft_wrap=True)
    if not answer.passages:
        return
    if trace:
        for passage in answer.passages:
            out.print()
            for line in _in_full(passage):
                out.print(line, soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("", "card", "wrote"):
        table.add_column(heading, overflow="fold")
    scores = [name for name in SCORES if any(getattr(p, name) is not None for p in answer.passages)]
    for heading in scores:
        table.add_column(heading, justify="right", no_wrap=True)
    for p in answer.passages:
        mark = "[green]kept[/green]" if p.kept else "[dim]dropped[/dim]"
        table.add_row(
            mark, escape(_writer(p)), escape(_shortened(p)), *(_number(getattr(p, name)) for name in scores)
        )
    out.print(table)


def _sure(answer: Answer) -> str:
    return "" if answer.confidence is None else f"sure {answer.confidence:.2f} · "


def _shortened(p: Passage) -> str:
    """On one line, a long passage cut: the whole of it is in the trace."""
    text = " ".join(p.text.split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN].rpartition(' ')[0]} …"


def _cited(citation: Citation, passages: Sequence[Passage]) -> str:
    """From the sentence to the card, its part that wrote, file and line: `"Galle" <- moons (retrieval) <- a.md:3`."""
    steps = [f'"{citation.sentence}"']
    if citation.passage is None:
        return f"{steps[0]} <- no kept passage"
    passage = passages[citation.passage]
    support = "" if citation.support >= 1 else f", support {_number(citation.support)}"
    steps.append(f"{passage.card} ({'retrieval' if passage.source else 'model'}{support})")
    place = _place(passage.source or passage.evidence)
    return " <- ".join([*steps, *([place] if place else [])])


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
