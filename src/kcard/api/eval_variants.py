"""The settings that an analysis of Knowledge Card compares: one setting, varied in one respect."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal

from kcard.errors import UsageError
from kcard.evaluation.runs.setting_name import SettingName

__all__ = ["DEFAULTS", "EvalAnalysis", "variants"]

EvalAnalysis = Literal["patch", "adding", "selectors", "documents"]

# What is varied unless settings are given, as in the paper's sections 5 and 6.
DEFAULTS = {"patch": "top-down", "adding": "top-down", "selectors": "bottom-up", "documents": "bottom-up"}
# One selector after the other in the hands of chance, as figure 3 leaves them out, and all three.
WITHOUT = {"relevance": "random", "pruner": "none", "checker": "none"}
# Documents that each card writes, that relevance keeps and that factuality keeps; the others stay (figure 4).
COUNTS = {"n1": (1, 2, 3, 4, 5), "n2": (3, 5, 8, 10), "n3": (1, 2, 3, 4, 5)}
Options = tuple[tuple[str, str], ...]


def variants(analysis: EvalAnalysis, settings: Sequence[str], cards: Sequence[str]) -> list[str]:
    """The settings of an analysis: direct, then each of `settings` that uses cards, varied; `cards` in that order.

    Raises UsageError where no setting uses cards, or one has the options that are varied already.
    """
    bases = [SettingName.of(name) for name in settings if name != "direct"]
    if not bases:
        raise UsageError(
            f"the analysis {analysis} varies a setting with cards: add one, such as {DEFAULTS[analysis]}"
        )
    return ["direct", *(str(name) for base in bases for name in _varied(analysis, base, cards))]


def _varied(analysis: EvalAnalysis, base: SettingName, cards: Sequence[str]) -> Iterator[SettingName]:
    if analysis in ("patch", "adding"):
        names = [card.partition("@")[0] for card in cards]
        one = [(("cards", name),) for name in names]
        changes: Iterator[Options] = iter(one) if analysis == "patch" else accumulate(one)
    elif analysis == "selectors":
        changes = iter([(), *(((key, value),) for key, value in WITHOUT.items()), tuple(WITHOUT.items())])
    else:
        changes = (((key, str(count)),) for key, counts in COUNTS.items() for count in counts)
    for change in changes:
        if base.changed & {key for key, _ in change}:
            raise UsageError(
                f"setting {base} has an option that the analysis {analysis} varies: leave it out"
            )
        yield SettingName(base.base, (*base.options, *change))
