"""A report as a self-contained web page, without scripts or network access, under a strict content security policy."""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kcard.evaluation.analyses.analysis import format_cell
from kcard.evaluation.plots import (
    Curves,
    Intervals,
    PlotPoint,
    PlotSeries,
    render_template,
    write_document,
)
from kcard.evaluation.records import Mean
from kcard.evaluation.report.report import Report, amount, headline, metric_name, other_scores, probability
from kcard.evaluation.runs.results import OF_A_TASK
from kcard.evaluation.runs.summary import SettingSummary

FOLDER = Path(__file__).parent

# A trace may come from another version of kcard or be edited by hand, so its structure is not trusted.

# The fields of a trace (kcard.types.Answer.to_json) that the page shows, with their types.
PLACE = {"file": str, "line": object, "section": str}
SCORES = ("relevance", "faithfulness", "factuality")
PASSAGE = {"card": str, "text": str, "pruned": str, "kept": bool, **dict.fromkeys(SCORES, float)}
TRACE = {
    "gate": {"name": str, "score": float, "fired": bool},
    "cards": [str],
    "passages": [PASSAGE | {"source": PLACE, "evidence": {"text": str, **PLACE}}],
    "citations": [{"sentence": str, "passage": int, "support": float, "verdict": str}],
    "confidence": float,
    "nearest": {"text": str, **PLACE},
    "notes": [str],
}


def parse_trace(data: Any, shape: Any = TRACE) -> Any:
    """Return the trace in this shape: what is missing or of another type becomes an empty text or list, or None."""
    if isinstance(shape, dict):
        if not isinstance(data, dict):
            data = {}
        return {key: parse_trace(data.get(key), inner) for key, inner in shape.items()}
    if isinstance(shape, list):
        if not isinstance(data, list | tuple):
            return []
        return [parse_trace(item, shape[0]) for item in data]
    if shape is str:
        if data is None:
            return ""
        return str(data)
    if shape is float and type(data) is int:
        return float(data)
    if shape is object or type(data) is shape:
        return data
    return None


def format_place(source: Mapping[str, Any]) -> str:
    """Format the file, line and section of a source, as far as they are known."""
    parts = [source["file"], source["section"]]
    if source["file"] and source["line"]:
        parts.insert(1, f"line {source['line']}")
    return ", ".join(filter(None, parts))


def render(report: Report) -> str:
    """Render the page as HTML. Texts of cards, LLMs and data are escaped."""
    groups = sorted({shown.question.group for shown in report.excerpt.questions} - {""})
    # The style sheet, with rules that filter the questions by the page's controls.
    rules = [(FOLDER / "report.css").read_text(encoding="utf-8")]
    controls = (
        ("task", "t", len(report.tasks)),
        ("group", "g", len(groups)),
        ("right", "r", len(report.settings)),
        ("wrong", "w", len(report.settings)),
        ("differ", "d", 1),
    )
    for control, prefix, count in controls:
        for i in range(count):
            hidden = f'main:has(#f-{control} option[value="{i}"]:checked) .q:not(.{prefix}{i})'
            rules.append(f"{hidden} {{ display: none; }}")
    style = "\n".join(rules)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return render_template(
        FOLDER / "report.html",
        report=report,
        style=style,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'",
        groups=groups,
        accuracy=accuracy,
        score=score,
        against=against,
        amount=amount,
        cell=format_cell,
        headline=headline,
        metric_name=metric_name,
        of_a_task=OF_A_TASK,
        other_scores=other_scores,
        probability=probability,
        trace=parse_trace,
        place=format_place,
        score_names=SCORES,
    )


def write_page(report: Report, path: Path | str) -> Path:
    """Write the page to `path`, atomically. Raises UsageError if that fails."""
    return write_document(path, render(report))


def accuracy(report: Report, task: str) -> Intervals:
    """Return a chart of every setting's score with its interval."""
    rows = report.of(task)
    metric = metric_name(rows[0].metric)
    points = [PlotPoint(row.setting, score(row)) for row in rows]
    reference = None
    if len(rows) > 1:
        reference = rows[0].value
    return Intervals(f"{metric} on {task}, 95 % interval", tuple(points), reference)


def against(report: Report, task: str, cost: str) -> Curves:
    """Return a chart of every setting's score against its `cost` per question: "calls" or "seconds"."""
    rows = report.of(task)
    label = {"calls": "LLM calls a question", "seconds": "seconds a question"}[cost]
    series = [PlotSeries.of(row.setting, [(getattr(row, cost) / row.n, score(row))]) for row in rows]
    return Curves(label, metric_name(rows[0].metric), tuple(series), "dot")


def score(row: SettingSummary) -> Mean:
    """Return the task's metric with its interval."""
    return Mean(row.value, row.low, row.high)
