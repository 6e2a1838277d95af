"""A histogram of scores that fits into a table cell."""

from collections.abc import Sequence

__all__ = ["BLOCKS", "counts", "histogram"]

BLOCKS = "▁▂▃▄▅▆▇█"


def counts(scores: Sequence[float], bins: int = 10) -> list[int]:
    """How many of the scores in [0, 1] fall into each of `bins` equal ranges; 1.0 belongs to the last."""
    found = [0] * bins
    for score in scores:
        found[min(int(max(score, 0.0) * bins), bins - 1)] += 1
    return found


def histogram(scores: Sequence[float], bins: int = 10) -> str:
    """One character a range, its height the share of the fullest; the lowest block is an empty range.

    Empty text for no scores.
    """
    if not scores:
        return ""
    found = counts(scores, bins)
    most = max(found)
    # A range that holds anything is never drawn as an empty one, however few.
    return "".join(BLOCKS[0 if n == 0 else max(1, round(n / most * (len(BLOCKS) - 1)))] for n in found)
