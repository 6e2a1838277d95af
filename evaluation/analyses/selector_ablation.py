"""What each selector is good for: one at a time left to chance (Knowledge Card, section 6 and figure 3)."""

from collections.abc import Iterable, Mapping, Sequence

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.analyses.variant import Variant, difference, score, varied
from kcard.evaluation.charts.chart import Intervals, Point
from kcard.evaluation.runs.result import Result

__all__ = ["selector_ablation"]

NAMES = {"relevance": "relevance", "pruner": "pruning", "checker": "factuality"}


def selector_ablation(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The score of a setting without each selector, and what that costs.

    Raises UsageError unless the run has a setting with and without changed selectors.
    """
    parts: dict[tuple[str, str], list[Variant]] = {}
    for variant in varied(results, metrics, frozenset(NAMES)):
        parts.setdefault((variant.task, variant.base), []).append(variant)
    parts = {key: part for key, part in parts.items() if len(part) > 1 and any(not v.options for v in part)}
    if not parts:
        raise UsageError("this run leaves out no selector: start one with `kcard eval --analysis selectors`")
    return Analysis(
        "selectors",
        "Without a selector",
        "The score with relevance left to chance, without pruning, and without factuality, and the change against all "
        "three selectors on the same questions, with 95 % intervals.",
        ("task", "setting", "selectors", "score", "change"),
        tuple(
            (
                task,
                base,
                _named(v),
                score(v, metrics[task]),
                difference(v, _whole(part), metrics[task]) if v.options else None,
            )
            for (task, base), part in parts.items()
            for v in part
        ),
        tuple(_chart(task, base, part, metrics[task]) for (task, base), part in parts.items()),
    )


def _whole(part: Sequence[Variant]) -> Variant:
    """The setting with all its selectors."""
    return next(variant for variant in part if not variant.options)


def _named(variant: Variant) -> str:
    left_out = [NAMES[key] for key, _ in variant.options]
    if len(left_out) == len(NAMES):
        return "none"
    return f"without {', '.join(left_out)}" if left_out else "all three"


def _chart(task: str, base: str, part: Sequence[Variant], metric: str) -> Intervals:
    return Intervals(
        f"score of {base} on {task} without selectors; the numbers are in the table",
        tuple(Point(_named(v), score(v, metric)) for v in part),
        f"score of {base} on {task}",
        score(_whole(part), metric).mean,
    )
