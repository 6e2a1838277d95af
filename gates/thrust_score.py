"""The Thrust score (equation 1 of the paper) and its variants (appendix A.5), for many queries at once.

Each cluster pulls at the query, the harder the larger and the nearer it is; the score is the length of the mean pull.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

__all__ = ["VARIANTS", "Table", "ThrustScore", "Variant"]

Matrix = npt.NDArray[np.float64]
Variant = Literal[
    "thrust", "without-size", "without-direction", "without-distance", "cosine-distance", "inertia"
]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
# Relative to the centroids' length: nearer than this, rounding of single-precision vectors decides about direction
# and distance, and the query counts as lying on the centroid, at this distance.
CLOSE = 1e-5
LEAST = 1e-30


@dataclass(frozen=True)
class Table:
    """What a score needs of the sample, one row a cluster, over all classes.

    centroids  shape (c, d); c is the N K of the paper where no class has fewer distinct samples than K
    weights    sizes, or the inertia for the variant of that name, shape (c,), at least 0
    """

    centroids: Matrix
    weights: Matrix


class ThrustScore:
    """s(q) = |mean over clusters of weight / distance^2 * direction|, finite.

    A query on a centroid scores weight / (c * CLOSE^2 * mean squared length of the centroids): very high, but the
    same in any batch. The variants change one part each:

    without-size       weight 1
    without-direction  the mean of the numbers weight / distance^2, not of vectors
    without-distance   weight times direction, however far; on the centroid itself there is no direction, so 0
    cosine-distance    (1 - cosine)^2 takes the place of distance^2
    inertia            the weights are the clusters' inertia (as the table gives them)
    """

    def __init__(self, table: Table, variant: Variant = "thrust") -> None:
        self._variant = variant
        self._weights = np.ones_like(table.weights) if variant == "without-size" else table.weights
        # About their mean, distances by scalar products lose no digits to a common offset.
        self._middle = table.centroids.mean(axis=0)
        self._centroids = table.centroids - self._middle
        self._squares = (self._centroids**2).sum(axis=1)
        length = np.linalg.norm(table.centroids, axis=1)
        self._between = self._squares + self._squares[:, None] - 2 * self._centroids @ self._centroids.T
        self._near = max(CLOSE**2 * float((length**2).mean() or 1), LEAST)
        self._units = table.centroids / np.maximum(length, LEAST)[:, None]

    def __call__(self, vectors: npt.NDArray[np.floating]) -> Matrix:
        """The scores of vectors, shape (n, d) to (n,)."""
        queries = vectors - self._middle
        squares = np.einsum("nd,nd->n", queries, queries)[:, None] + self._squares
        squares -= 2 * queries @ self._centroids.T
        np.maximum(squares, self._near, out=squares)
        pulls = self._pulls(vectors, squares)
        count = len(self._weights)
        if self._variant == "without-direction":
            return np.asarray(pulls.sum(axis=1) / count)
        # With d_i . d_j = (|d_i|^2 + |d_j|^2 - |m_i - m_j|^2) / 2, the sum of vectors needs distances alone.
        parts = pulls / np.sqrt(squares)
        total = parts.sum(axis=1) * np.einsum("nc,nc->n", parts, squares)
        total -= np.einsum("nc,nc->n", parts @ self._between, parts) / 2
        scores = np.sqrt(np.maximum(total, 0))
        on = squares <= self._near
        if self._variant != "without-distance" and on.any():
            # The direction is lost there, but one such pull outweighs all others.
            scores = np.where(on.any(axis=1), (pulls * on).sum(axis=1), scores)
        return np.asarray(scores / count)

    def _pulls(self, vectors: npt.NDArray[np.floating], squares: Matrix) -> Matrix:
        """The length of each cluster's pull at each query, shape (n, c); `squares` are squared distances."""
        if self._variant == "without-distance":
            return np.broadcast_to(self._weights, squares.shape)
        if self._variant == "cosine-distance":
            length = np.linalg.norm(vectors, axis=1, keepdims=True)
            apart = 1 - (vectors / np.maximum(length, LEAST)) @ self._units.T
            return np.asarray(self._weights / np.maximum(apart, CLOSE**2) ** 2)
        return np.asarray(self._weights / squares)
