"""Logistic regression with an L2 penalty, and its calibration: a small head for vectors that another model made."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Head", "calibrated", "cross_fitted"]

Floats = npt.NDArray[np.float64]
PENALTIES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
FOLDS = 5
ITERATIONS = 1000


@dataclass(frozen=True, eq=False)
class Head:
    """P(1) of a vector x is 1 / (1 + exp(-(weights . x + bias))); weights of shape (d,)."""

    weights: Floats
    bias: float

    def probabilities(self, vectors: npt.NDArray[np.floating]) -> Floats:
        """P(1) of each vector, shape (n,)."""
        odds = vectors @ self.weights + self.bias
        found: Floats = np.exp(-np.logaddexp(0, -odds))
        return found


def calibrated(vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.bool_], seed: int) -> Head:
    """The head whose probabilities can be believed. Both classes must occur; the same seed gives the same head.

    The penalty is the one of least log-loss over folds; then slope and intercept are fitted to what the folds said
    of what they had not seen (Platt), the slope at least 0: where the vectors say nothing, every score
    is the share of ones. A class with a single member can't be split into folds; then nothing is tuned.
    """
    return cross_fitted(vectors, truth, seed)[0]


def cross_fitted(
    vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.bool_], seed: int
) -> tuple[Head, Floats]:
    """The same head, and P(1) of each vector by the heads of the folds that had not seen it, shape (n,).

    Those probabilities are calibrated as the head's are. Where nothing can be split, they are the head's own.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict

    centre = vectors.mean(axis=0, dtype=np.float64)
    scale = float(np.sqrt(((vectors - centre) ** 2).sum(axis=1).mean())) or 1.0
    inputs = (vectors - centre) / scale
    model, slope, shift = LogisticRegression(max_iter=ITERATIONS), 1.0, 0.0
    unseen: Floats | None = None
    count = min(FOLDS, int(truth.sum()), int((~truth).sum()))
    if count > 1:
        folds = StratifiedKFold(count, shuffle=True, random_state=seed % 2**32)
        penalties = {"C": [1 / penalty for penalty in PENALTIES]}
        model = (
            GridSearchCV(model, penalties, scoring="neg_log_loss", cv=folds)
            .fit(inputs, truth)
            .best_estimator_
        )
        unseen = cross_val_predict(model, inputs, truth, cv=folds, method="decision_function")
        line = LogisticRegression(C=1000, max_iter=ITERATIONS).fit(unseen[:, None], truth)
        slope, shift = float(line.coef_[0, 0]), float(line.intercept_[0])
        if slope <= 0:
            share = float(truth.mean())
            slope, shift = 0.0, float(np.log(share / (1 - share)))
    model.fit(inputs, truth)
    weights = slope * model.coef_[0] / scale
    head = Head(weights, slope * float(model.intercept_[0]) + shift - float(weights @ centre))
    if unseen is None:
        return head, head.probabilities(vectors)
    return head, np.exp(-np.logaddexp(0, -(slope * unseen + shift)))
