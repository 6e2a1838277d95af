"""Thrust (Zhao et al., 2023): how far a question lies from the clusters of a task.

It is fitted on questions alone, without their correctness.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, Resources, Settings, parse_settings
from kcard.gates.features import Representation, bind, find, finite_vectors
from kcard.gates.popularity import best_threshold
from kcard.gates.records import Query, Record
from kcard.interfaces import Array
from kcard.types import derive_seed

Matrix = npt.NDArray[np.float64]
KMEANS_RUNS = 10


@dataclass(frozen=True)
class Clusters:
    """A clustering of vectors.

    centroids  their means, shape (k, d)
    members    the cluster of each vector, shape (n,)
    inertia    summed squared distance of each cluster's members to its centroid, shape (k,)
    """

    centroids: Matrix
    members: npt.NDArray[np.intp]
    inertia: Matrix

    @property
    def sizes(self) -> Matrix:
        """Return the number of members of each cluster, shape (k,); none is empty."""
        return np.bincount(self.members, minlength=len(self.centroids)).astype(np.float64)


def kmeans(points: Matrix, k: int, seed: int = 0) -> Clusters:
    """Cluster `points`, shape (n, d), by the best of ten runs of k-means; n and k are at least 1.

    There are fewer than `k` clusters if fewer points are distinct. The same points in the same order, and the same
    seed, give the same clusters.
    """
    from sklearn.cluster import KMeans

    distinct = len(np.unique(points, axis=0))
    clustering = KMeans(min(k, distinct), n_init=KMEANS_RUNS, tol=0, random_state=seed % 2**32).fit(points)
    apart = ((points - clustering.cluster_centers_[clustering.labels_]) ** 2).sum(axis=1)
    inertia = np.bincount(clustering.labels_, weights=apart).astype(np.float64)
    return Clusters(clustering.cluster_centers_, clustering.labels_, inertia)


Variant = Literal[
    "thrust", "without-size", "without-direction", "without-distance", "cosine-distance", "inertia"
]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
# Relative to the centroids' length: nearer than this, rounding of single-precision vectors decides about direction
# and distance, and the query counts as lying on the centroid, at this distance.
MIN_DISTANCE = 1e-5
MIN_LENGTH = 1e-30


@dataclass(frozen=True)
class Table:
    """The clusters of all classes, one row each, as the score needs them.

    centroids  shape (c, d); c is the N K of the paper where no class has fewer distinct samples than K
    weights    sizes, or the inertia for the variant of that name, shape (c,), at least 0
    """

    centroids: Matrix
    weights: Matrix


class ThrustScore:
    """s(q) = |mean over clusters of weight / distance^2 * direction|, finite: equation 1 of the paper.

    Each cluster pulls at the query, the harder the larger and nearer it is; the score is the length of the mean pull. A
    query on a centroid scores weight / (c * MIN_DISTANCE^2 * mean squared length of the centroids): very high, but the
    same in any batch. The variants (appendix A.5) change one part each:

    without-size       weight 1
    without-direction  the mean of the numbers weight / distance^2, not of vectors
    without-distance   weight times direction, however far; on the centroid itself there is no direction, so 0
    cosine-distance    (1 - cosine)^2 takes the place of distance^2
    inertia            the weights are the clusters' inertia (as the table gives them)
    """

    def __init__(self, table: Table, variant: Variant = "thrust") -> None:
        self._variant = variant
        self._weights = table.weights
        if variant == "without-size":
            self._weights = np.ones_like(table.weights)
        # About their mean, distances by scalar products lose no digits to a common offset.
        self._middle = table.centroids.mean(axis=0)
        self._centroids = table.centroids - self._middle
        self._squares = (self._centroids**2).sum(axis=1)
        length = np.linalg.norm(table.centroids, axis=1)
        self._between = self._squares + self._squares[:, None] - 2 * self._centroids @ self._centroids.T
        self._near = max(MIN_DISTANCE**2 * float((length**2).mean() or 1), MIN_LENGTH)
        self._units = table.centroids / np.maximum(length, MIN_LENGTH)[:, None]

    def __call__(self, vectors: npt.NDArray[np.floating]) -> Matrix:
        """Score vectors, shape (n, d), to shape (n,)."""
        queries = vectors - self._middle
        squares = np.einsum("nd,nd->n", queries, queries)[:, None] + self._squares
        squares -= 2 * queries @ self._centroids.T
        np.maximum(squares, self._near, out=squares)
        # The length of each cluster's pull at each query, shape (n, c)
        if self._variant == "without-distance":
            pulls = np.broadcast_to(self._weights, squares.shape)
        elif self._variant == "cosine-distance":
            length = np.linalg.norm(vectors, axis=1, keepdims=True)
            apart = 1 - (vectors / np.maximum(length, MIN_LENGTH)) @ self._units.T
            pulls = np.asarray(self._weights / np.maximum(apart, MIN_DISTANCE**2) ** 2)
        else:
            pulls = np.asarray(self._weights / squares)
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


MIN_CLUSTERS = 3


@dataclass(frozen=True)
class ThrustSettings:
    """How a Thrust gate is fitted.

    encoder        what embeds the questions (kcard.gates.features)
    variant        a row of the paper's table 5 (kcard.gates.thrust)
    clusters       K, clusters per class; 0: by the paper's rule. A class with fewer distinct vectors has fewer
    by_label       whether the records' labels, if there are any, are the classes; else all are one class
    percentile     of the sample's own scores, the threshold: 25, 50 and 75 are scarce, medium and abundant knowledge;
                   None: the threshold that is best on the sample (not the paper's)
    leave_one_out  whether each record is left out of its cluster for its own score, on which the threshold depends
    sample         the maximum number of records used; 0: all
    seed           for drawing the sample and for the clusters
    """

    encoder: str = "minilm"
    variant: Variant = "thrust"
    clusters: int = 0
    by_label: bool = True
    percentile: float | None = 50
    leave_one_out: bool = False
    sample: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.percentile is not None and not 0 <= self.percentile <= 100:
            raise ValueError(f"percentile is {self.percentile}, expected a number from 0 to 100, or null")
        for name in ("clusters", "sample"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected a whole number of at least 0")


@dataclass(frozen=True)
class Thrust(FittedGate):
    """Centroids, weights and a threshold.

    table  rounded to single precision, so that a stored gate scores as it did before
    """

    options: ThrustSettings
    threshold: float
    table: Table
    representation: Representation
    kind = "thrust"

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Cluster the questions of the records, whatever their order.

        Raises UsageError without records, if only some have labels, and if a question has no finite vector.
        """
        options = parse_settings(ThrustSettings, settings, "thrust")
        representation = resources.representation or find(options.encoder)
        if not records:
            raise UsageError("gate thrust: no records to fit it on: give about 200")
        # The sample does not depend on the order of the records.
        ordered = sorted(
            records, key=lambda record: (derive_seed(options.seed, record.question), record.label or "")
        )
        sample = ordered[: options.sample or None]
        classes = _classes(sample, options)
        vectors = finite_vectors(representation, [record.question for record in sample]).astype(np.float64)
        options = replace(
            options, encoder=representation.name, clusters=options.clusters or clusters_by_rule(len(sample))
        )
        groups, parts, centroids, weights = [], [], [], []
        for label, rows in classes.items():
            group = vectors[rows]
            part = kmeans(group, options.clusters, derive_seed(options.seed, label))
            groups.append(group)
            parts.append(part)
            centroids.append(part.centroids)
            if options.variant == "inertia":
                weights.append(part.inertia)
            else:
                weights.append(part.sizes)
        table = Table(_single(np.concatenate(centroids)), _single(np.concatenate(weights)))
        if options.leave_one_out:
            own = _left_out(groups, parts, table, options.variant)
        else:
            own = ThrustScore(table, options.variant)(vectors)
        if options.percentile is not None:
            threshold = float(np.quantile(own, options.percentile / 100))
        else:
            without = [record.correct_without for record in sample]
            with_ = [record.correct_with for record in sample]
            threshold = best_threshold(own, without, with_, bound=float(np.finfo(np.float32).max))
        return cls(options, threshold, table, representation)

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        options = parse_settings(ThrustSettings, settings, "thrust")
        centroids, weights = state.arrays["centroids"], state.arrays["weights"]
        if centroids.ndim != 2 or weights.shape != centroids.shape[:1] or not len(weights):
            raise ValueError("its arrays do not fit each other")
        if not (np.isfinite(centroids).all() and np.isfinite(weights).all()):
            raise ValueError("its arrays are not finite")
        representation = bind(options.encoder, state.values["encoder_sha256"], resources.representation)
        table = Table(centroids.astype(np.float64), weights.astype(np.float64))
        return cls(options, threshold, table, representation)

    def state(self) -> GateState:
        arrays = {
            "centroids": self.table.centroids.astype(np.float32),
            "weights": self.table.weights.astype(np.float32),
        }
        return GateState(arrays, {"encoder_sha256": self.representation.digest})

    def scores(self, queries: Sequence[Query]) -> Array:
        vectors = finite_vectors(self.representation, [query.question for query in queries])
        return self._score(vectors).astype(np.float32)

    @cached_property
    def _score(self) -> ThrustScore:
        return ThrustScore(self.table, self.options.variant)


def clusters_by_rule(sample: int) -> int:
    """Return K by the paper's footnote 2: the fourth root of the sample's size, rounded up, and at least 3."""
    clusters = MIN_CLUSTERS
    while clusters**4 < sample:
        clusters += 1
    return clusters


def _classes(sample: Sequence[Record], settings: ThrustSettings) -> dict[str, list[int]]:
    """Return the rows of each class; one class for all if there are no labels (the paper's dummy label)."""
    labels = [record.label for record in sample]
    lacking = labels.count(None)
    if not settings.by_label or lacking == len(labels):
        return {"": list(range(len(sample)))}
    if lacking:
        raise UsageError(
            f"gate thrust: {lacking} of {len(sample)} records have no label: give all of them one, or fit with "
            "by_label false"
        )
    classes: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        classes.setdefault(str(label), []).append(row)
    return dict(sorted(classes.items()))


def _single(values: Matrix) -> Matrix:
    return values.astype(np.float32).astype(np.float64)


def _left_out(groups: Sequence[Matrix], parts: Sequence[Clusters], table: Table, variant: Variant) -> Matrix:
    """Score each record of the sample after it has left its cluster; the other clusters stay as they are."""
    scores, first = [], 0
    for group, part in zip(groups, parts, strict=True):
        for vector, member in zip(group, part.members, strict=True):
            row, size = first + int(member), float(part.sizes[member])
            if size == 1:  # the cluster is gone
                rest = Table(np.delete(table.centroids, row, axis=0), np.delete(table.weights, row))
            else:
                centroids, weights = table.centroids.copy(), table.weights.copy()
                apart = vector - centroids[row]
                centroids[row] -= apart / (size - 1)
                lost = 1.0
                if variant == "inertia":
                    lost = size / (size - 1) * (apart @ apart)
                weights[row] -= lost
                rest = Table(centroids, np.maximum(weights, 0))
            score = 0.0
            if len(rest.weights):
                (score,) = ThrustScore(rest, variant)(vector[None])
            scores.append(score)
        first += len(part.centroids)
    return np.array(scores)
