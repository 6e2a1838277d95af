"""The web page of a report, with the traces of its questions.

A trace may come from another version of kcard or be edited by hand, so its structure is not trusted.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kcard.evaluation.analyses.answers import format_cell
from kcard.evaluation.charts.chart import Intervals, PlotPoint, Scatter, render_template, write_document
from kcard.evaluation.records import Mean
from kcard.evaluation.report.report import Report, amount, headline, metric_name, other_scores, probability
from kcard.evaluation.runs.summary import OF_A_TASK, SettingSummary


@dataclass(frozen=True)
class ShownPassage:
    """A passage, its scores by name, and the places of its source and its evidence."""

    number: int
    card: str
    text: str
    pruned: str
    is_kept: bool
    scores: Mapping[str, float | None]
    source: str
    evidence: str
    evidence_place: str


@dataclass(frozen=True)
class ShownTrace:
    """How an answer came about.

    citations  of each sentence: its text, the number of the cited passage from 1 (None: no citation), and the support
    scored     the scores that any passage has
    """

    gate: str = ""
    score: float | None = None
    fired: bool | None = None
    cards: tuple[str, ...] = ()
    passages: tuple[ShownPassage, ...] = ()
    citations: tuple[tuple[str, int | None, float | None], ...] = ()
    notes: tuple[str, ...] = ()
    confidence: float | None = None
    nearest: str = ""
    nearest_place: str = ""
    scored: tuple[str, ...] = field(default=())


SCORES = ("relevance", "faithfulness", "factuality")


def parse_trace(data: Mapping[str, Any]) -> ShownTrace:
    """Parse EvalResult.trace, which is empty if the question failed."""
    # The passages with their scores and evidence.
    passages = []
    for i, entry in enumerate(map(_mapping, _list(data.get("passages"))), 1):
        evidence = _mapping(entry.get("evidence"))
        passages.append(
            ShownPassage(
                number=i,
                card=_text(entry.get("card")),
                text=_text(entry.get("text")),
                pruned=_text(entry.get("pruned")),
                is_kept=entry.get("kept") is True,
                scores={name: _number(entry.get(name)) for name in SCORES},
                source=_place(_mapping(entry.get("source"))),
                evidence=_text(evidence.get("text")),
                evidence_place=_place(evidence),
            )
        )
    # The citations, with passages counted from 1.
    citations = []
    for citation in map(_mapping, _list(data.get("citations"))):
        passage = citation.get("passage")
        number = passage + 1 if isinstance(passage, int) else None
        citations.append((_text(citation.get("sentence")), number, _number(citation.get("support"))))
    gate, nearest = _mapping(data.get("gate")), _mapping(data.get("nearest"))
    fired = gate.get("fired")
    return ShownTrace(
        gate=_text(gate.get("name")),
        score=_number(gate.get("score")),
        fired=fired if isinstance(fired, bool) else None,
        cards=tuple(map(_text, _list(data.get("cards")))),
        passages=tuple(passages),
        citations=tuple(citations),
        notes=tuple(map(_text, _list(data.get("notes")))),
        confidence=_number(data.get("confidence")),
        nearest=_text(nearest.get("text")),
        nearest_place=_place(nearest),
        scored=tuple(name for name in SCORES if any(p.scores[name] is not None for p in passages)),
    )


def _place(source: Mapping[str, Any]) -> str:
    """Format the file, line and section of a source, as far as they are known."""
    file, line, section = _text(source.get("file")), source.get("line"), _text(source.get("section"))
    return ", ".join(part for part in (file, f"line {line}" if file and line else "", section) if part)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# A report as a self-contained web page, without scripts or network access, under a strict content security policy.

FOLDER = Path(__file__).parent
STYLES = (
    FOLDER.parent / "charts" / "palette.css",
    FOLDER.parent / "charts" / "charts.css",
    FOLDER / "report.css",
)


def render(report: Report) -> str:
    """Render the page as HTML. Texts of cards, LLMs and data are escaped."""
    groups = sorted({shown.question.group for shown in report.excerpt.questions} - {""})
    # The style sheet, with rules that filter the questions by the page's controls.
    rules = [path.read_text(encoding="utf-8") for path in STYLES]
    controls = (
        ("task", "t", len(report.tasks)),
        ("group", "g", len(groups)),
        ("right", "r", len(report.settings)),
        ("wrong", "w", len(report.settings)),
        ("differ", "d", 1),
    )
    for control, letter, count in controls:
        for i in range(count):
            hidden = f'main:has(#f-{control} option[value="{i}"]:checked) .q:not(.{letter}{i})'
            rules.append(f"{hidden} {{ display: none; }}")
    style = "\n".join(rules)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return render_template(
        FOLDER / "report.html",
        report=report,
        style=style,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
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
    )


def write_page(report: Report, path: Path | str) -> Path:
    """Write the page to `path`, atomically. Raises UsageError if that fails."""
    return write_document(path, render(report))


def accuracy(report: Report, task: str) -> Intervals:
    """Return a chart of every setting's score with its interval."""
    rows = report.of(task)
    metric = metric_name(rows[0].metric)
    base = report.row(task, report.reference(task))
    return Intervals(
        f"{metric} of {len(rows)} settings on {task}, with 95 % intervals; the numbers are in the table",
        tuple(PlotPoint(row.setting, score(row)) for row in rows),
        f"{metric}, 95 % interval",
        None if base is None or len(rows) == 1 else base.value,
    )


def against(report: Report, task: str, cost: str) -> Scatter:
    """Return a chart of every setting's score against its `cost` per question: "calls" or "seconds"."""
    rows = report.of(task)
    metric = metric_name(rows[0].metric)
    label = {"calls": "LLM calls a question", "seconds": "seconds a question"}[cost]
    return Scatter(
        f"{metric} of {len(rows)} settings on {task} against {label}; the numbers are in the table",
        tuple(PlotPoint(row.setting, score(row), getattr(row, cost) / row.n) for row in rows),
        label,
        metric,
    )


def score(row: SettingSummary) -> Mean:
    """Return the task's metric with its interval."""
    return Mean(row.value, row.low, row.high)
