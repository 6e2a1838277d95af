"""Which cards wrote, and whose passages were kept, for each task and group (Knowledge Card, figure 8)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.charts.chart import Heat
from kcard.evaluation.runs.result import Result

__all__ = ["card_choice"]


@dataclass
class _Counts:
    """Questions of one group under one setting, and on how many of them each card wrote and was kept."""

    questions: int = 0
    wrote: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)


def card_choice(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """Shares of questions by setting, group and card. Raises UsageError where no card wrote anything."""
    del metrics
    found: defaultdict[tuple[str, str], _Counts] = defaultdict(_Counts)
    for result in results:
        counts = found[result.setting, f"{result.task}: {result.group}" if result.group else result.task]
        counts.questions += 1
        passages = [p for p in result.trace.get("passages", ()) if isinstance(p, dict)]
        counts.wrote.update({str(p.get("card")) for p in passages})
        counts.kept.update({str(p.get("card")) for p in passages if p.get("kept")})
    found = defaultdict(_Counts, {key: counts for key, counts in sorted(found.items()) if counts.wrote})
    if not found:
        raise UsageError("no card wrote a passage in this run: run a setting with cards, such as bottom-up")
    cards = sorted({card for counts in found.values() for card in counts.wrote})
    return Analysis(
        "cards",
        "Cards by task",
        "The share of questions for which a card wrote a passage, and for which the selectors kept one. A group "
        "without a card that is kept often may need a card of its own.",
        ("setting", "group", "card", "questions", "wrote", "kept"),
        tuple(
            (
                setting,
                group,
                card,
                counts.questions,
                counts.wrote[card] / counts.questions,
                counts.kept[card] / counts.questions,
            )
            for (setting, group), counts in found.items()
            for card in cards
            if counts.wrote[card]
        ),
        _heats(found, cards),
    )


def _heats(found: Mapping[tuple[str, str], _Counts], cards: list[str]) -> tuple[Heat, ...]:
    """One map for each setting; for a run with one group only, one map of all settings."""
    settings = list(dict.fromkeys(setting for setting, _ in found))
    groups = list(dict.fromkeys(group for _, group in found))
    if len(groups) == 1:
        return (_heat(groups[0], {setting: counts for (setting, _), counts in found.items()}, cards),)
    return tuple(
        _heat(setting, {group: counts for (name, group), counts in found.items() if name == setting}, cards)
        for setting in settings
    )


def _heat(name: str, parts: Mapping[str, _Counts], cards: list[str]) -> Heat:
    return Heat(
        f"share of questions for which each of {len(cards)} cards was kept, {name}; the numbers are in the table",
        tuple(parts),
        tuple(cards),
        tuple(tuple(counts.kept[card] / counts.questions for card in cards) for counts in parts.values()),
        title=f"{name}: share of questions with a kept passage",
    )
