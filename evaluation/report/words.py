"""Numbers and findings of a report in words."""

from kcard.evaluation.report.report import Report
from kcard.evaluation.report.table import Pair

__all__ = ["amount", "headline", "metric_name", "probability"]

METRICS = {"em": "exact match", "f1": "F1", "substring": "substring match", "macro-f1": "macro F1"}

SURE = 0.05


def amount(value: float | None, digits: int = 2) -> str:
    """A number with few digits, or a dash."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}f}" if value == 0 or abs(value) >= 0.01 else f"{value:.1g}"


def metric_name(metric: str) -> str:
    """A metric as people call it."""
    return METRICS.get(metric, metric.replace("-", " "))


def probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def headline(report: Report, task: str) -> str:
    """The best setting of a task, and whether it is better than the reference by more than chance."""
    rows = report.of(task)
    best = max(rows, key=lambda row: row.score.mean)
    base = report.reference(task)
    name = metric_name(best.metric)
    score = f"{best.score.mean:.3f} [{best.score.low:.3f}, {best.score.high:.3f}]"
    if len(rows) == 1:
        return f"{best.setting} has {name} {score}."
    if best.setting == base:
        return f"No setting has a higher {name} than {base}: {score}."
    pair = report.pair(task, best.setting, base)
    return f"{best.setting} has the highest {name}, {score}{_compared(pair)}."


def _compared(pair: Pair | None) -> str:
    if pair is None:
        return ""
    d = pair.difference
    gain = f"; {d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}] over {pair.second}"
    if pair.p_holm < SURE:
        return f"{gain} (p {probability(pair.p_holm)})"
    return f"{gain}, which may be chance (p {probability(pair.p_holm)})"
