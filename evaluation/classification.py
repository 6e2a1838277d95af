"""How right chosen options and classes are."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["accuracy", "balanced_accuracy", "macro_f1"]

Labels = Sequence[str] | npt.NDArray[np.str_]


def accuracy(chosen: str, right: Sequence[str]) -> float:
    """1.0 where the letter of the chosen option is a right one, else 0.0; "" (none was chosen) is wrong."""
    return float(bool(chosen) and chosen in right)


def balanced_accuracy(predicted: Labels, actual: Labels) -> float:
    """The mean, over the classes that occur in `actual`, of the share of its items predicted rightly, in [0, 1].

    A prediction that is no class, such as "", is wrong. nan for no items.
    """
    said, true = np.asarray(predicted), np.asarray(actual)
    recalls = [float((said[true == name] == name).mean()) for name in np.unique(true)]
    return float(np.mean(recalls)) if recalls else float("nan")


def macro_f1(predicted: Labels, actual: Labels, classes: Sequence[str] = ()) -> float:
    """The mean of the F1 of each class, in [0, 1]; 0 for a class that neither occurs nor is predicted.

    `classes`: over which the mean is taken, by default those that occur in `actual`. nan where there is none.
    """
    said, true = np.asarray(predicted), np.asarray(actual)
    scores = []
    for name in classes or np.unique(true):
        hits = float(((said == name) & (true == name)).sum())
        together = float((said == name).sum() + (true == name).sum())
        scores.append(2 * hits / together if together else 0.0)
    return float(np.mean(scores)) if scores else float("nan")
