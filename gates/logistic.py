"""Logistic regression with an L2 penalty, and its calibration: a small head for vectors that another model made."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Head", "calibrated"]

Floats = npt.NDArray[np.float64]
PENALTIES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # strongest first, so that each starts from the last
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Head:
    """P(1) of a vector x is 1 / (1 + exp(-(weights . x + bias))); weights of shape (d,)."""

    weights: Floats
    bias: float

    def odds(self, vectors: npt.NDArray[np.floating]) -> Floats:
        """The log-odds of each vector, shape (n,)."""
        found: Floats = vectors @ self.weights + self.bias
        return found

    def probabilities(self, vectors: npt.NDArray[np.floating]) -> Floats:
        """P(1) of each vector, shape (n,)."""
        found: Floats = np.exp(-np.logaddexp(0, -self.odds(vectors)))
        return found


def calibrated(vectors: npt.NDArray[np.floating], truth: npt.NDArray[np.bool_], seed: int) -> Head:
    """The head whose probabilities can be believed. Both classes must occur; the same seed gives the same head.

    The penalty is the one of least log-loss over folds; then slope and intercept are fitted to what the folds said
    of what they had not seen (Platt), the slope at least 0: where nothing can be told from the vectors, every score
    is the share of ones. A class with a single member can't be split into folds; then nothing is tuned.
    """
    centre = vectors.mean(axis=0, dtype=np.float64)
    scale = float(np.sqrt(((vectors - centre) ** 2).sum(axis=1).mean())) or 1.0
    inputs = (vectors - centre) / scale
    folds = _folds(truth, seed)
    if folds.max() < 1:
        penalty, slope, shift = 1.0, 1.0, 0.0
    else:
        unseen = _cross_fitted(inputs, truth, folds)
        best = int(np.argmin([_loss(odds, truth) for odds in unseen]))
        penalty = PENALTIES[best]
        line = _fit(unseen[best][:, None], truth, [1e-3])[0]
        slope, shift = float(line.weights[0]), line.bias
        if slope <= 0:
            share = float(truth.mean())
            slope, shift = 0.0, float(np.log(share / (1 - share)))
    head = _fit(inputs, truth, [p for p in PENALTIES if p >= penalty])[-1]
    weights = slope * head.weights / scale
    return Head(weights, slope * head.bias + shift - float(weights @ centre))


def _folds(truth: npt.NDArray[np.bool_], seed: int) -> npt.NDArray[np.int64]:
    """The fold of each, as many of either class in every one; a single fold where a class has a single member."""
    count = min(FOLDS, int(truth.sum()), int((~truth).sum()))
    rng = np.random.default_rng(seed)
    found = np.zeros(len(truth), dtype=np.int64)
    for cls in (True, False):
        members = rng.permutation(np.flatnonzero(truth == cls))
        found[members] = np.arange(len(members)) % count
    return found


def _cross_fitted(inputs: Floats, truth: npt.NDArray[np.bool_], folds: npt.NDArray[np.int64]) -> list[Floats]:
    """For each penalty, the log-odds of each input by a head that has not seen it."""
    found = np.zeros((len(PENALTIES), len(truth)))
    for fold in range(int(folds.max()) + 1):
        out = folds == fold
        for row, head in enumerate(_fit(inputs[~out], truth[~out], PENALTIES)):
            found[row, out] = head.odds(inputs[out])
    return list(found)


def _loss(odds: Floats, truth: npt.NDArray[np.bool_]) -> float:
    return float(np.logaddexp(0, np.where(truth, -odds, odds)).mean())


def _fit(
    inputs: Floats, truth: npt.NDArray[np.bool_], penalties: tuple[float, ...] | list[float]
) -> list[Head]:
    """A head for each penalty (on the weights, not the bias), by L-BFGS from the last one's."""
    import torch

    x = torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float64))
    sign = torch.from_numpy(np.where(truth, -1.0, 1.0))
    weights = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
    heads = []
    for penalty in penalties:
        search = torch.optim.LBFGS(
            [weights, bias], max_iter=200, tolerance_grad=1e-7, line_search_fn="strong_wolfe"
        )

        def step(penalty: float = penalty, search: torch.optim.LBFGS = search) -> torch.Tensor:
            search.zero_grad()
            loss = torch.nn.functional.softplus(sign * (x @ weights + bias)).sum()
            loss = (loss + penalty / 2 * weights.square().sum()) / len(x)
            loss.backward()
            return loss

        search.step(step)
        heads.append(Head(weights.detach().numpy().copy(), float(bias.detach())))
    return heads
