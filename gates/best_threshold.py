"""The threshold that serves the questions of a development set best (Adaptive Retrieval, section 5), found fast."""

import numpy as np
import numpy.typing as npt

__all__ = ["BOUND", "best_threshold"]

BOUND = 1000.0  # stands for an infinite threshold, so that it can be stored and subtracted
DIGITS = 9  # sums that agree so far are equal


def best_threshold(
    scores: npt.ArrayLike, without: npt.ArrayLike, with_: npt.ArrayLike, bound: float = BOUND
) -> float:
    """The threshold t that maximises the mean of: with knowledge where the score is below t, without elsewhere.

    scores, without, with_: shape (n,), n at least 1, scores within (-bound, bound). What is tried: -bound, which seeks
    nowhere; the middle between neighbouring scores, equal ones staying together; bound, which seeks everywhere. Of
    thresholds that are as good the lowest is taken, which seeks least. One sort and a running sum: n log n, where
    brute force is n squared.
    """
    order = np.argsort(scores, kind="stable")
    values = np.asarray(scores, dtype=np.float64)[order]
    gains = np.asarray(with_, dtype=np.float64)[order] - np.asarray(without, dtype=np.float64)[order]
    sums = np.round(np.concatenate([[0.0], np.cumsum(gains)]), DIGITS)
    apart = np.flatnonzero(values[1:] > values[:-1]) + 1
    places = np.concatenate([[0], apart, [len(values)]])
    cut = int(places[np.argmax(sums[places])])
    if cut in {0, len(values)}:
        return bound if cut else -bound
    middle = float(values[cut - 1] / 2 + values[cut] / 2)
    # The middle of two neighbouring floats may round to the lower one, which would then not lie below it.
    return middle if middle > values[cut - 1] else float(values[cut])
