"""How many documents cards should write and selectors keep (Knowledge Card, section 6 and figure 4)."""

from collections.abc import Iterable, Mapping, Sequence

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.analyses.variant import Variant, score, varied
from kcard.evaluation.charts.chart import Line, Lines, Point
from kcard.evaluation.record import Mean
from kcard.evaluation.runs.result import Result

__all__ = ["document_counts"]

NAMES = {"n1": "n1, written by each card", "n2": "n2, kept by relevance", "n3": "n3, kept by factuality"}


def document_counts(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The score, and the seconds a question, for each number of documents.

    Raises UsageError unless the run has settings that differ in n1, n2 or n3 alone.
    """
    parts: dict[tuple[str, str], list[Variant]] = {}
    for variant in varied(results, metrics, frozenset(NAMES)):
        if len(variant.options) == 1:
            parts.setdefault((variant.task, variant.base), []).append(variant)
    parts = {key: part for key, part in parts.items() if len(part) > 1}
    if not parts:
        raise UsageError("this run varies no n1, n2 or n3: start one with `kcard eval --analysis documents`")
    return Analysis(
        "documents",
        "Numbers of documents",
        "The score, with its 95 % interval, for numbers of documents that each card writes (n1) and that relevance "
        "(n2) and factuality (n3) keep; the other two stay as they are.",
        ("task", "setting", "varied", "number", "score", "seconds"),
        tuple(
            (task, base, v.options[0][0], int(v.values[0]), score(v, metrics[task]), _seconds(v))
            for (task, base), part in parts.items()
            for v in part
        ),
        tuple(_chart(task, base, part, metrics[task]) for (task, base), part in parts.items()),
    )


def _seconds(variant: Variant) -> float:
    return sum(outcome.seconds for outcome in variant.outcomes.values()) / len(variant.outcomes)


def _chart(task: str, base: str, part: Sequence[Variant], metric: str) -> Lines:
    series: dict[str, list[tuple[int, Mean]]] = {}
    for variant in part:
        ((key, value),) = variant.options
        series.setdefault(key, []).append((int(value), score(variant, metric)))
    return Lines(
        f"score of {base} on {task} by number of documents; the numbers are in the table",
        tuple(
            Line(
                NAMES[key],
                tuple(Point(f"{key} = {n}", mean, n) for n, mean in sorted(points, key=lambda p: p[0])),
            )
            for key, points in series.items()
        ),
        "documents",
        f"score of {base} on {task}",
    )
