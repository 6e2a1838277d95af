"""An answer as a person reads it."""

from rich.markup import escape
from rich.table import Table

from kcard.answer import Answer, Passage
from kcard.cli.output import console

__all__ = ["show"]


def show(answer: Answer, trace: bool = False) -> None:
    """The answer, the gate's decision, and a row for each passage; with `trace` in full, with its evidence."""
    out = console()
    out.print(f"[bold]{escape(answer.answer)}[/bold]")
    out.print(
        f"gate {answer.gate.name} {answer.gate.score:.2f} "
        f"-> {'cards were asked' if answer.gate.fired else 'no card was asked'}"
        f" · {answer.mode} · {answer.calls} LLM calls · {answer.seconds:.2f} s"
    )
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
    for heading in ("relevance", "factuality"):
        table.add_column(heading, justify="right", no_wrap=True)
    for p in answer.passages:
        mark = "[green]kept[/green]" if p.kept else "[dim]dropped[/dim]"
        table.add_row(mark, escape(p.card), escape(p.text), _number(p.relevance), _number(p.factuality))
    out.print(table)


def _in_full(p: Passage) -> list[str]:
    lines = [f"[{'green' if p.kept else 'dim'}]{'kept' if p.kept else 'dropped'}[/] {escape(p.card)}"]
    lines.append(f"  wrote       {escape(p.text)}")
    if p.pruned is not None and p.pruned != p.text:
        lines.append(f"  pruned to   {escape(p.pruned)}")
    lines.append(f"  relevance   {_number(p.relevance)}")
    lines.append(f"  factuality  {_number(p.factuality)}")
    if p.evidence is not None:
        where = f" ({escape(p.evidence.file)}:{p.evidence.line})" if p.evidence.file else ""
        lines.append(f"  evidence    {escape(p.evidence.text)}{where}")
    return lines


def _number(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"
