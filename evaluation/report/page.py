"""A report as one self-contained web page: no script, nothing is fetched, a strict content security policy."""

import base64
import hashlib
from pathlib import Path

from kcard.evaluation.analyses.analysis import shown
from kcard.evaluation.charts.chart import Intervals, Point, Scatter
from kcard.evaluation.page import filled, written
from kcard.evaluation.record import Mean
from kcard.evaluation.report.outcome import OF_A_TASK
from kcard.evaluation.report.report import Report
from kcard.evaluation.report.trace import trace
from kcard.evaluation.report.words import amount, headline, metric_name, other_scores, probability
from kcard.evaluation.runs.summary import SettingSummary

__all__ = ["render", "write_page"]

FOLDER = Path(__file__).parent
STYLES = (
    FOLDER.parent / "charts" / "palette.css",
    FOLDER.parent / "charts" / "charts.css",
    FOLDER / "report.css",
)


def render(report: Report) -> str:
    """The page as HTML. Whatever cards, LLMs and data say is escaped."""
    groups = sorted({shown.question.group for shown in report.excerpt.questions} - {""})
    style = _style(report, groups)
    return filled(
        FOLDER / "report.html",
        report=report,
        style=style,
        policy=f"default-src 'none'; style-src 'sha256-{_sha256(style)}'; base-uri 'none'; form-action 'none'",
        groups=groups,
        accuracy=accuracy,
        score=score,
        against=against,
        amount=amount,
        cell=shown,
        headline=headline,
        metric_name=metric_name,
        of_a_task=OF_A_TASK,
        other_scores=other_scores,
        probability=probability,
        trace=trace,
    )


def write_page(report: Report, path: Path | str) -> Path:
    """Write the page, whole or not at all; UsageError where that can't be written."""
    return written(path, render(report))


def accuracy(report: Report, task: str) -> Intervals:
    """The score of every setting with its interval."""
    rows = report.of(task)
    metric = metric_name(rows[0].metric)
    base = report.row(task, report.reference(task))
    return Intervals(
        f"{metric} of {len(rows)} settings on {task}, with 95 % intervals; the numbers are in the table",
        tuple(Point(row.setting, score(row)) for row in rows),
        f"{metric}, 95 % interval",
        None if base is None or len(rows) == 1 else base.value,
    )


def against(report: Report, task: str, cost: str) -> Scatter:
    """The score of every setting against its cost: calls or seconds, a question."""
    rows = report.of(task)
    metric = metric_name(rows[0].metric)
    label = {"calls": "LLM calls a question", "seconds": "seconds a question"}[cost]
    return Scatter(
        f"{metric} of {len(rows)} settings on {task} against {label}; the numbers are in the table",
        tuple(Point(row.setting, score(row), getattr(row, cost) / row.n) for row in rows),
        label,
        metric,
    )


def score(row: SettingSummary) -> Mean:
    """The task's metric with its interval."""
    return Mean(row.value, row.low, row.high)


def _style(report: Report, groups: list[str]) -> str:
    """The style sheet, with the rules that filter the questions."""
    rules = [path.read_text(encoding="utf-8") for path in STYLES]
    chosen = (
        ("task", "t", len(report.tasks)),
        ("group", "g", len(groups)),
        ("right", "r", len(report.settings)),
        ("wrong", "w", len(report.settings)),
        ("differ", "d", 1),
    )
    for control, letter, count in chosen:
        for i in range(count):
            shown = f'main:has(#f-{control} option[value="{i}"]:checked) .q:not(.{letter}{i})'
            rules.append(f"{shown} {{ display: none; }}")
    return "\n".join(rules)


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
