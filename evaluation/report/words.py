"""Numbers and findings of a report in words."""

from collections.abc import Mapping

from kcard.evaluation.report.outcome import OF_A_TASK
from kcard.evaluation.report.pairs import Pair
from kcard.evaluation.report.report import Report
from kcard.evaluation.runs.summary import SettingSummary

__all__ = ["amount", "headline", "metric_name", "other_scores", "probability"]

METRICS = {"em": "exact match", "f1": "F1", "substring": "substring match", "macro-f1": "macro F1"}

SURE = 0.05


def amount(value: float | None, digits: int = 2) -> str:
    """A number with few digits, or a dash."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}f}" if abs(value) >= 0.01 or abs(value) < 0.001 else f"{value:.1g}"


def metric_name(metric: str) -> str:
    """A metric as people call it."""
    return METRICS.get(metric, metric.replace("-", " "))


def probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def other_scores(row: SettingSummary) -> Mapping[str, float]:
    """The scores of a setting beside the task's own metric; of a choice, those that are not the same as accuracy."""
    if row.accuracy is None:
        found: dict[str, float | None] = {"em": row.em, "f1": row.f1, "substring": row.substring}
    else:
        found = {
            "accuracy": row.accuracy,
            "balanced-accuracy": row.balanced_accuracy,
            "macro-f1": row.macro_f1,
        }
    return {name: value for name, value in found.items() if name != row.metric and value is not None}


def headline(report: Report, task: str) -> str:
    """The best setting of a task, and whether it is better than the reference by more than chance."""
    rows = report.of(task)
    best = max(rows, key=lambda row: row.value)
    base = report.reference(task)
    name = metric_name(best.metric)
    score = f"{best.value:.3f} [{best.low:.3f}, {best.high:.3f}]"
    if len(rows) == 1:
        return f"{best.setting} has {name} {score}."
    if best.setting == base:
        return f"No setting has a higher {name} than {base}: {score}."
    pair = report.pair(task, best.setting, base)
    compared = _compared(pair, best.p_holm, OF_A_TASK.get(best.metric, ""))
    return f"{best.setting} has the highest {name}, {score}{compared}."


def _compared(pair: Pair | None, p: float | None, metric: str) -> str:
    """`metric`: what is compared, where that is not the one named before."""
    if pair is None or p is None:
        return ""
    d, label = pair.difference, f"{metric} " if metric else ""
    gain = f"; {label}{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}] over {pair.second}"
    if p < SURE:
        return f"{gain} (p {probability(p)})"
    return f"{gain}, which may be chance (p {probability(p)})"
