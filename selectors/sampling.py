"""Top-k factuality sampling (Knowledge Card, section 2.2): which documents reach the LLM."""

from collections.abc import Sequence

import numpy as np

from kcard.errors import UsageError

__all__ = ["draw"]


def draw(scores: Sequence[float | None], count: int, seed: int, k: int | None = None) -> list[int]:
    """Draw `count` of the items without replacement and return their indices in the order drawn.

    The k items with the highest scores take part (default: min(2 * count, all); of equal ones the earlier),
    each with p = exp(s) / sum of exp(s) over those not yet drawn. With `count` items or fewer all stay.
    Where `count` reaches the number of items with a score, all of these stay, best first, and the places
    left over go to items without one (None: no evidence was found), in the order given. `seed` decides
    everything: derive it from what is being asked (kcard.sampling.derive_seed).
    """
    if count < 0 or (k is not None and k < count):
        raise UsageError(
            f"can't draw {count} documents from the best {k}: k must be at least the number drawn"
        )
    known = [i for i, score in enumerate(scores) if score is not None]
    order = sorted(known, key=lambda i: (-_known(scores[i]), i))
    if count == 0 or len(order) <= count:
        unknown = [i for i, score in enumerate(scores) if score is None]
        return [*order, *unknown][:count]
    best = order[: 2 * count if k is None else k]
    weights = np.exp([_known(scores[i]) for i in best])
    chosen = np.random.default_rng(seed).choice(
        len(best), size=count, replace=False, p=weights / weights.sum()
    )
    return [best[i] for i in chosen.tolist()]


def _known(score: float | None) -> float:
    assert score is not None
    return score
