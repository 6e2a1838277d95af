"""What each card alone adds to the LLM (Knowledge Card, section 5, "Patching LLM Knowledge", and figure 2)."""

from collections.abc import Iterable, Mapping, Sequence

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis, Cell
from kcard.evaluation.analyses.variant import Variant, difference, score, varied
from kcard.evaluation.charts.chart import Heat, Intervals, Point
from kcard.evaluation.record import Mean
from kcard.evaluation.runs.result import Result

__all__ = ["patched_cards"]

DIRECT = "direct"


def patched_cards(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The score of the LLM with each card alone, and its gain over the LLM without cards, by group.

    Raises UsageError unless the run has direct and settings with one card each.
    """
    found = varied(results, metrics, frozenset({"cards"}))
    bare = {variant.task: variant for variant in found if variant.base == DIRECT}
    patched = [variant for variant in found if len(variant.options) == 1 and variant.task in bare]
    if not patched:
        raise UsageError(
            "this run has no settings with one card each: start one with `kcard eval --analysis patch`"
        )
    return Analysis(
        "patch",
        "One card at a time",
        "The LLM with each card alone, and its gain over the LLM without cards on the same questions, with 95 % "
        "intervals. Cards on the questions' own subject should gain most.",
        ("task", "setting", "card", "group", "questions", "score", "gain"),
        tuple(
            row for variant in patched for row in _rows(variant, bare[variant.task], metrics[variant.task])
        ),
        tuple(
            chart
            for task in dict.fromkeys(variant.task for variant in patched)
            for chart in _charts([v for v in patched if v.task == task], bare[task], metrics[task])
        ),
    )


def _rows(variant: Variant, bare: Variant, metric: str) -> Iterable[tuple[Cell, ...]]:
    """All questions, then those of each group, where there are some."""
    for group in ("", *_groups([variant])):
        part = _only(variant, group)
        gain = difference(part, bare, metric)
        card = variant.values[0]
        yield variant.task, variant.base, card, group or "all", len(part.outcomes), score(part, metric), gain


def _groups(variants: Sequence[Variant]) -> list[str]:
    return sorted({outcome.group for variant in variants for outcome in variant.outcomes.values()} - {""})


def _only(variant: Variant, group: str) -> Variant:
    """The variant on the questions of a group; "" is all."""
    kept = {id_: outcome for id_, outcome in variant.outcomes.items() if group in ("", outcome.group)}
    return Variant(variant.task, variant.base, variant.options, kept)


def _charts(patched: Sequence[Variant], bare: Variant, metric: str) -> Iterable[Intervals | Heat]:
    gains = [(_named(v, patched), difference(v, bare, metric)) for v in patched]
    yield Intervals(
        f"gain of each of {len(patched)} cards alone on {bare.task}; the numbers are in the table",
        tuple(Point(name, gain) for name, gain in gains if gain is not None),
        f"gain over the LLM without cards on {bare.task}",
        0.0,
        signed=True,
    )
    groups = _groups(patched)
    if len(groups) > 1:
        columns = [bare, *patched]
        yield Heat(
            f"score with each of {len(patched)} cards alone in {len(groups)} groups; the numbers are in the table",
            tuple(groups),
            ("no card", *(_named(v, patched) for v in patched)),
            tuple(tuple(_mean(_only(v, group), metric) for v in columns) for group in groups),
            title=f"{bare.task}: score with one card",
        )


def _named(variant: Variant, among: Sequence[Variant]) -> str:
    """The card, with the setting where there are several."""
    return variant.values[0] if len({v.base for v in among}) == 1 else f"{variant.values[0]}, {variant.base}"


def _mean(variant: Variant, metric: str) -> float | None:
    found: Mean | None = score(variant, metric) if variant.outcomes else None
    return None if found is None else found.mean
