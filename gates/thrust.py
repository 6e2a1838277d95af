"""Thrust (Zhao et al., 2023): the LLM knows what lies near clusters of questions of the same task, in some embedding.

It is fitted on questions alone; which of them were answered rightly it does not use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.gates.best_threshold import best_threshold
from kcard.gates.kinds import GateState, Resources, typed
from kcard.gates.kmeans import Clusters, kmeans
from kcard.gates.query import Query
from kcard.gates.record import Record
from kcard.gates.representation import Representation, bind, find, finite
from kcard.gates.thrust_score import Table, ThrustScore, Variant
from kcard.protocols import Array
from kcard.sampling import derive_seed

__all__ = ["Thrust", "ThrustSettings", "clusters_by_rule"]

Matrix = npt.NDArray[np.float64]
FEWEST = 3


@dataclass(frozen=True)
class ThrustSettings:
    """How a Thrust gate is fitted.

    encoder        what embeds the questions (kcard.gates.representation)
    variant        a row of the paper's table 5 (kcard.gates.thrust_score)
    clusters       K, clusters a class; 0: by the paper's rule. A class with fewer distinct vectors has fewer
    by_label       whether the records' labels are the classes, where they have labels; else all are one class
    percentile     of the sample's own scores, the threshold: 25, 50 and 75 are scarce, medium and abundant knowledge;
                   None: the threshold that would have served the sample best (not the paper's)
    leave_one_out  whether each sample's own score, for the threshold, leaves the sample out of its cluster
    sample         at most so many of the records are used; 0: all
    seed           draws the sample and the clusters' seeds
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
class Thrust:
    """A fitted gate: centroids, weights and a threshold. See kcard.gates.kinds.Fitted.

    table  as single precision holds it, so that a stored gate scores as it did before
    """

    settings: Mapping[str, Any]
    threshold: float
    table: Table
    representation: Representation
    kind: str = "thrust"

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> "Thrust":
        """Cluster the questions of the records; their order does not matter.

        Raises UsageError for no records, for labels that only some have, and where a question has no finite vector.
        """
        given = typed(ThrustSettings, settings, "thrust")
        representation = resources.representation or find(given.encoder)
        sample = _drawn(records, given)
        classes = _classes(sample, given)
        vectors = finite(representation, [record.question for record in sample]).astype(np.float64)
        given = replace(
            given, encoder=representation.name, clusters=given.clusters or clusters_by_rule(len(sample))
        )
        groups = {label: vectors[rows] for label, rows in classes.items()}
        parts = {
            label: kmeans(group, given.clusters, derive_seed(given.seed, label))
            for label, group in groups.items()
        }
        table = _table(list(parts.values()), given.variant)
        score = ThrustScore(table, given.variant)
        own = _left_out(groups, parts, table, given.variant) if given.leave_one_out else score(vectors)
        return cls(asdict(given), _threshold(own, sample, given.percentile), table, representation)

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> "Thrust":
        given = typed(ThrustSettings, settings, "thrust")
        centroids, weights = state.arrays["centroids"], state.arrays["weights"]
        if centroids.ndim != 2 or weights.shape != centroids.shape[:1] or not len(weights):
            raise ValueError("its arrays do not fit each other")
        if not (np.isfinite(centroids).all() and np.isfinite(weights).all()):
            raise ValueError("its arrays are not finite")
        representation = bind(given.encoder, state.values["encoder_sha256"], resources.representation)
        table = Table(centroids.astype(np.float64), weights.astype(np.float64))
        return cls(asdict(given), threshold, table, representation)

    def state(self) -> GateState:
        arrays = {
            "centroids": self.table.centroids.astype(np.float32),
            "weights": self.table.weights.astype(np.float32),
        }
        return GateState(arrays, {"encoder_sha256": self.representation.digest})

    def scores(self, queries: Sequence[Query]) -> Array:
        vectors = finite(self.representation, [query.question for query in queries])
        return self._score(vectors).astype(np.float32)

    @cached_property
    def _score(self) -> ThrustScore:
        return ThrustScore(self.table, self.settings["variant"])


def clusters_by_rule(sample: int) -> int:
    """K by the paper's footnote 2: the fourth root of the sample's size, rounded up, and at least 3."""
    return next(k for k in count(FEWEST) if k**4 >= sample)


def _drawn(records: Sequence[Record], settings: ThrustSettings) -> list[Record]:
    """The sample, in an order that the order of the records has no part in."""
    if not records:
        raise UsageError("gate thrust: no records to fit it on: give about 200")
    ordered = sorted(
        records, key=lambda record: (derive_seed(settings.seed, record.question), record.label or "")
    )
    return ordered[: settings.sample or None]


def _classes(sample: Sequence[Record], settings: ThrustSettings) -> dict[str, list[int]]:
    """The rows of each class; one class for all where there are no labels (the paper's dummy label)."""
    labels = [record.label for record in sample]
    lacking = labels.count(None)
    if not settings.by_label or lacking == len(labels):
        return {"": list(range(len(sample)))}
    if lacking:
        raise UsageError(
            f"gate thrust: {lacking} of {len(sample)} records have no label: give all of them one, or fit with "
            "by_label false"
        )
    return {
        label: [row for row, own in enumerate(labels) if own == label]
        for label in sorted({label for label in labels if label is not None})
    }


def _threshold(own: Matrix, sample: Sequence[Record], percentile: float | None) -> float:
    if percentile is not None:
        return float(np.quantile(own, percentile / 100))
    without, with_ = (
        [getattr(record, name) for record in sample] for name in ("correct_without", "correct_with")
    )
    return best_threshold(own, without, with_, bound=float(np.finfo(np.float32).max))


def _table(parts: Sequence[Clusters], variant: Variant) -> Table:
    weights = [part.inertia if variant == "inertia" else part.sizes for part in parts]
    centroids = np.concatenate([part.centroids for part in parts])
    return Table(_single(centroids), _single(np.concatenate(weights)))


def _single(values: Matrix) -> Matrix:
    return values.astype(np.float32).astype(np.float64)


def _left_out(
    groups: Mapping[str, Matrix], parts: Mapping[str, Clusters], table: Table, variant: Variant
) -> Matrix:
    """Each sample's score by clusters that it is taken out of; the others stay as they are."""
    found, first = [], 0
    for label, part in parts.items():
        for vector, member in zip(groups[label], part.members, strict=True):
            row = first + int(member)
            rest = _without(vector, float(part.sizes[member]), row, table, variant)
            found.append(ThrustScore(rest, variant)(vector[None])[0] if len(rest.weights) else 0.0)
        first += len(part.centroids)
    return np.array(found)


def _without(vector: Matrix, size: float, row: int, table: Table, variant: Variant) -> Table:
    """The table once `vector` has left the cluster of that row, which had `size` members; a cluster of one goes."""
    if size == 1:
        return Table(np.delete(table.centroids, row, axis=0), np.delete(table.weights, row))
    centroids, weights = table.centroids.copy(), table.weights.copy()
    apart = vector - centroids[row]
    centroids[row] -= apart / (size - 1)
    weights[row] -= size / (size - 1) * (apart @ apart) if variant == "inertia" else 1
    return Table(centroids, np.maximum(weights, 0))
