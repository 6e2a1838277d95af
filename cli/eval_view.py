"""What an evaluation came to, as a table for people."""

from typing import TYPE_CHECKING

from kcard.cli.output import console, echo, table

if TYPE_CHECKING:
    from kcard.api.evaluate import Evaluation
    from kcard.evaluation.runs.summary import SettingSummary

__all__ = ["show"]

HEADINGS = (
    "setting",
    "n",
    "",
    "95 % interval",
    "p",
    "p, all settings",
    "calls",
    "tokens",
    "seconds",
    "errors",
)


def show(found: "Evaluation") -> None:
    """A table for each task: settings as rows."""
    out = console()
    for task in found.run.plan.tasks:
        rows = [row for row in found.rows if row.task == task.name]
        if not rows:
            continue
        asked = f"{len(task.ids)} of {task.total} questions"
        echo(f"{task.name}, {asked}, {found.run.plan.llm}")
        paid = any(row.cost is not None for row in rows)
        headings = [heading or task.metric for heading in HEADINGS] + (["cost"] if paid else [])
        columns = table(*headings, right=headings[1:], no_wrap=True)
        for row in rows:
            columns.add_row(
                *_cells(row), *([f"{row.cost:.4f}" if row.cost is not None else "-"] if paid else [])
            )
        out.print(columns)
        if missing := sum(row.missing for row in rows):
            echo(f"{missing} questions were not asked yet")


def _cells(row: "SettingSummary") -> tuple[str, ...]:
    return (
        row.setting,
        str(row.n),
        f"{row.value:.3f}",
        f"\\[{row.low:.3f}, {row.high:.3f}]",
        "-" if row.p is None else f"{row.p:.2g}",
        "-" if row.p_holm is None else f"{row.p_holm:.2g}",
        str(row.calls),
        "-" if row.tokens_in is None or row.tokens_out is None else f"{row.tokens_in} + {row.tokens_out}",
        f"{row.seconds:.1f}",
        str(row.errors),
    )
