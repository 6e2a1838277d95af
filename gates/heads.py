"""Small heads on another model's vectors: calibrated logistic regression for classes, ridge regression for numbers."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
LOGISTIC_PENALTIES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
RIDGE_PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
MAX_FOLDS = 5
MAX_ITERATIONS = 1000


@dataclass(frozen=True, eq=False)
class LogisticHead:
    """P(1) of a vector x is 1 / (1 + exp(-(weights . x + bias))); weights of shape (d,)."""

    weights: Floats
    bias: float

    def probabilities(self, vectors: npt.NDArray[np.floating]) -> Floats:
        """Return P(1) of each vector, shape (n,)."""
        odds = vectors @ self.weights + self.bias
        probabilities: Floats = np.exp(-np.logaddexp(0, -odds))
        return probabilities


def fit_calibrated(
    vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.bool_], seed: int
) -> LogisticHead:
    """Fit a calibrated head. Both classes must occur; the same seed gives the same head.

    The penalty has the least log-loss over folds; slope and intercept are then fitted to the held-out scores of the
    folds (Platt), with a slope of at least 0: if the vectors tell nothing, every probability is the share of ones. A
    class with a single member can't be split into folds; then nothing is tuned.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict

    centre = vectors.mean(axis=0, dtype=np.float64)
    scale = float(np.sqrt(((vectors - centre) ** 2).sum(axis=1).mean())) or 1.0
    inputs = (vectors - centre) / scale
    model, slope, shift = LogisticRegression(max_iter=MAX_ITERATIONS), 1.0, 0.0
    count = min(MAX_FOLDS, int(truth.sum()), int((~truth).sum()))
    if count > 1:
        folds = StratifiedKFold(count, shuffle=True, random_state=seed % 2**32)
        penalties = {"C": [1 / penalty for penalty in LOGISTIC_PENALTIES]}
        model = (
            GridSearchCV(model, penalties, scoring="neg_log_loss", cv=folds)
            .fit(inputs, truth)
            .best_estimator_
        )
        unseen = cross_val_predict(model, inputs, truth, cv=folds, method="decision_function")
        line = LogisticRegression(C=1000, max_iter=MAX_ITERATIONS).fit(unseen[:, None], truth)
        slope, shift = float(line.coef_[0, 0]), float(line.intercept_[0])
        if slope <= 0:
            share = float(truth.mean())
            slope, shift = 0.0, float(np.log(share / (1 - share)))
    model.fit(inputs, truth)
    weights = slope * model.coef_[0] / scale
    return LogisticHead(weights, slope * float(model.intercept_[0]) + shift - float(weights @ centre))


@dataclass(frozen=True, eq=False)
class LinearHead:
    """It predicts weights . x + bias of a vector x; weights of shape (d,)."""

    weights: Floats
    bias: float

    def predict(self, vectors: npt.NDArray[np.floating]) -> Floats:
        """Return the prediction for each vector, shape (n,)."""
        predictions: Floats = vectors @ self.weights + self.bias
        return predictions


def fit_linear(
    vectors: npt.NDArray[np.floating], targets: Floats, mixture: Floats
) -> tuple[LinearHead, Floats]:
    """Fit k targets, shape (n, k), by ridge regression; return a head for their mixture and its held-out predictions.

    mixture  the weight of each target, shape (k,)

    Each target has the penalty with the least squared error when records are left out one at a time. The held-out
    predictions, shape (n,), are by weights fitted without a record, but with the mean of all: that of the others is
    higher where the target is lower, and under a large penalty that would be most of what they differ by.
    """
    from sklearn.linear_model import RidgeCV

    mean = targets.mean(axis=0)
    if len(targets) == 1:
        return LinearHead(np.zeros(vectors.shape[1]), float(mean @ mixture)), targets @ mixture
    # With a scorer, scikit-learn stores predictions rather than squared errors: shape (n, k, penalties).
    model = RidgeCV(
        RIDGE_PENALTIES, scoring="neg_mean_squared_error", store_cv_results=True, alpha_per_target=True
    )
    model.fit(vectors, targets - mean)
    # It drops the second axis of a single target.
    chosen = [RIDGE_PENALTIES.index(penalty) for penalty in np.atleast_1d(model.alpha_)]
    left_out = model.cv_results_.reshape(*targets.shape, -1)[:, range(len(chosen)), chosen]
    unseen = left_out + mean + (targets - mean) / (len(targets) - 1)
    bias = float((model.intercept_ + mean) @ mixture)
    return LinearHead(mixture @ np.atleast_2d(model.coef_), bias), unseen @ mixture
