"""Thrust gates: what is stored of a sample, where the threshold lies, and samples that are odd."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.errors import UsageError
from kcard.gates.base import Resources
from kcard.gates.records import Query, Record
from kcard.gates.thrust import (
    MIN_DISTANCE,
    VARIANTS,
    Table,
    Thrust,
    ThrustScore,
    Variant,
    clusters_by_rule,
    kmeans,
)
from tests.fakes import Points

RESOURCES = Resources(representation=Points())


def text(vector: npt.NDArray[np.float64]) -> str:
    return " ".join(str(np.float32(x)) for x in vector)


def records(count: int, width: int = 4, labels: Sequence[str] = (), seed: int = 0) -> list[Record]:
    random = np.random.default_rng(seed)
    given = [labels[i % len(labels)] if labels else None for i in range(count)]
    return [
        Record(text(random.normal(size=width)), float(random.integers(2)), float(random.integers(2)), label=x)
        for x in given
    ]


def fit(given: Sequence[Record], /, **settings: Any) -> Thrust:
    return Thrust.fit(given, settings, RESOURCES)


def queries(sample: Sequence[Record]) -> list[Query]:
    return [record.query for record in sample]


@pytest.mark.parametrize(
    ("sample", "clusters"), [(1, 3), (81, 3), (82, 4), (200, 4), (256, 4), (257, 5), (1296, 6), (10**4, 10)]
)
def test_k_is_the_fourth_root_of_the_sample_size_rounded_up_and_at_least_three(
    sample: int, clusters: int
) -> None:
    assert clusters_by_rule(sample) == clusters


def test_every_class_is_clustered_and_only_centroids_and_sizes_are_stored() -> None:
    sample = records(90, labels=("no", "yes", "maybe"))
    gate = fit(sample)
    arrays, values = gate.state()
    assert arrays["centroids"].shape == (3 * 4, 4)
    assert arrays["weights"].sum() == 90
    assert set(arrays) == {"centroids", "weights"}
    assert values == {"encoder_sha256": "0" * 64}
    assert not any(record.question in str(gate.settings) for record in sample)


def test_without_labels_or_without_their_use_all_questions_are_one_class() -> None:
    assert len(fit(records(90)).table.weights) == 4
    assert len(fit(records(90, labels=("a", "b")), by_label=False).table.weights) == 4
    assert len(fit(records(90, labels=("a", "b")), clusters=10).table.weights) == 20


@pytest.mark.parametrize("percentile", [25, 50, 75])
def test_the_threshold_is_the_percentile_of_the_samples_own_scores(percentile: int) -> None:
    sample = records(100)
    gate = fit(sample, percentile=percentile)
    own = gate.scores(queries(sample))
    assert gate.threshold == pytest.approx(np.percentile(own.astype(np.float64), percentile), rel=1e-5)
    assert (own < gate.threshold).mean() == pytest.approx(percentile / 100, abs=0.02)


def table(*numbers: float) -> Table:
    centroids = [[x, 0.0] for x in numbers[::2]]
    return Table(np.array(centroids), np.array(numbers[1::2]))


# The centroids and weights without each of the points.
@pytest.mark.parametrize(
    ("points", "clusters", "variant", "tables"),
    [
        (
            (0, 1, 2, 30, 31, 90),
            3,
            "thrust",
            [
                table(1.5, 2, 30.5, 2, 90, 1),
                table(1, 2, 30.5, 2, 90, 1),
                table(0.5, 2, 30.5, 2, 90, 1),
                table(1, 3, 31, 1, 90, 1),
                table(1, 3, 30, 1, 90, 1),
                table(1, 3, 30.5, 2),
            ],
        ),
        (
            (0, 1, 2, 30, 31),
            2,
            "inertia",
            [
                table(1.5, 0.5, 30.5, 0.5),
                table(1, 2, 30.5, 0.5),
                table(0.5, 0.5, 30.5, 0.5),
                table(1, 2, 31, 0),
                table(1, 2, 30, 0),
            ],
        ),
    ],
)
def test_left_out_scores_are_those_of_clusters_that_never_had_the_point(
    points: tuple[int, ...], clusters: int, variant: Variant, tables: list[Table]
) -> None:
    expected = []
    for x, rest in zip(points, tables, strict=True):
        expected += ThrustScore(rest, variant)(np.array([[x, 0.0]])).tolist()
    sample = [Record(f"{x} 0", 1, 1) for x in points]
    step = 100 // (len(points) - 1)
    for row, score in enumerate(sorted(expected)):
        gate = fit(sample, clusters=clusters, variant=variant, leave_one_out=True, percentile=step * row)
        assert gate.threshold == pytest.approx(score, rel=1e-6)


def test_a_sample_that_is_its_own_cluster_raises_the_threshold_unless_it_is_left_out() -> None:
    sample = records(6)
    assert fit(sample, clusters=6).threshold > 1e6
    assert fit(sample, clusters=6, leave_one_out=True).threshold < 100


def test_percentile_none_takes_the_threshold_that_serves_the_sample_best() -> None:
    near = [Record(f"{x} 0", 1, 0) for x in np.linspace(-1, 1, 10)]
    far = [Record(f"{x} 9", 0, 1) for x in np.linspace(-9, 9, 5)]
    gate = fit([*near, *far], clusters=1, percentile=None)
    assert (gate.scores(queries(near)) >= gate.threshold).all()
    assert (gate.scores(queries(far)) < gate.threshold).all()
    always = fit([Record(f"{x} 0", 0, 1) for x in range(9)], percentile=None)
    assert (always.scores([Query("0 0"), Query("999 0")]) < always.threshold).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("leave_one_out", [True, False])
def test_the_order_of_the_records_does_not_matter(variant: Variant, leave_one_out: bool) -> None:
    sample = records(60, labels=("a", "b"))
    shuffled = [sample[i] for i in np.random.default_rng(0).permutation(60)]
    settings = {"variant": variant, "leave_one_out": leave_one_out, "sample": 50}
    one, other = fit(sample, **settings), fit(shuffled, **settings)
    np.testing.assert_array_equal(one.table.centroids, other.table.centroids)
    assert one.threshold == other.threshold


def test_at_most_200_records_are_used_unless_told_otherwise() -> None:
    sample = records(230)
    assert fit(sample).table.weights.sum() == 200
    assert fit(sample, sample=0).table.weights.sum() == 230
    other = fit(sample, seed=1)
    assert not np.array_equal(fit(sample).table.centroids, other.table.centroids)


def test_equal_embeddings_are_one_cluster_and_questions_on_it_are_known() -> None:
    gate = fit([Record("1 1", 1, 0)] * 20)
    assert gate.table.weights.tolist() == [20]
    on, off = gate.scores([Query("1 1"), Query("5 5")])
    assert np.isfinite(on)
    assert on >= gate.threshold > off


def test_labels_that_only_some_records_have_are_refused() -> None:
    with pytest.raises(UsageError, match="1 of 3 records have no label"):
        fit([*records(2, labels=("a",)), *records(1)])


def test_a_vector_that_is_not_finite_is_refused_with_its_question() -> None:
    with pytest.raises(UsageError, match="encoder points gives '1 nan' a vector that is not finite"):
        fit([Record("1 2", 1, 1), Record("1 nan", 1, 1)])
    with pytest.raises(UsageError, match="a vector that is not finite"):
        fit(records(5, width=2)).scores([Query("inf 0")])


# The Thrust score against equation 1 of the paper, written out literally and slowly, and what the paper says of it.

Matrix = npt.NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)


def norm(vector: Sequence[float]) -> float:
    return math.sqrt(sum(x * x for x in vector))


def literal(
    query: Sequence[float], centroids: Sequence[Sequence[float]], weights: Sequence[float], variant: Variant
) -> float:
    """Equation 1, sum by sum, with one part changed for each variant."""
    total, scalar = [0.0] * len(query), 0.0
    for centroid, weight in zip(centroids, weights, strict=True):
        d = [m - f for m, f in zip(centroid, query, strict=True)]
        size = 1.0 if variant == "without-size" else weight
        cosine = sum(m * f for m, f in zip(centroid, query, strict=True)) / (norm(centroid) * norm(query))
        far = {"without-distance": 1.0, "cosine-distance": 1 - cosine}.get(variant, norm(d))
        scalar += size / far**2
        total = [t + size / far**2 * x / norm(d) for t, x in zip(total, d, strict=True)]
    count = len(centroids)  # N K
    return scalar / count if variant == "without-direction" else norm([t / count for t in total])


def some(seed: int, clusters: int = 6, width: int = 5, queries: int = 4) -> tuple[Table, Matrix]:
    random = np.random.default_rng(seed)
    centroids = random.normal(size=(clusters, width)) * random.choice([0.1, 1, 100])
    sizes = random.integers(1, 60, clusters).astype(np.float64)
    offset = random.normal(size=width) * random.choice([0, 1, 50])
    asked = random.normal(size=(queries, width)) * random.choice([0.1, 1, 100]) + offset
    return Table(centroids + offset, sizes), asked


@pytest.mark.parametrize("variant", VARIANTS)
@given(seed=SEEDS, clusters=st.integers(1, 12))
@settings(max_examples=30)
def test_the_score_is_equation_1(variant: Variant, seed: int, clusters: int) -> None:
    table, queries = some(seed, clusters)
    expected = [
        literal(q, table.centroids.tolist(), table.weights.tolist(), variant) for q in queries.tolist()
    ]
    # What cancels out is right to the rounding of what was added.
    sizes = ThrustScore(table, "without-direction" if variant == "thrust" else variant)(queries)
    np.testing.assert_allclose(
        ThrustScore(table, variant)(queries), expected, rtol=1e-6, atol=1e-7 * float(sizes.max())
    )


def test_on_a_centroid_rounding_in_single_precision_does_not_matter() -> None:
    random = np.random.default_rng(0)
    centroids = random.normal(size=(10, 384)).astype(np.float32)
    score = ThrustScore(Table(centroids.astype(np.float64), np.arange(1.0, 11)))
    noisy = centroids * (1 + 1e-7 * random.normal(size=centroids.shape).astype(np.float32))
    assert (score(noisy) == score(centroids)).all()
    expected = np.arange(1, 11) / 10 / (MIN_DISTANCE**2 * (centroids**2).sum(axis=1).mean())
    np.testing.assert_allclose(score(centroids), expected, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("length", [0, 1e-12, 1e9])
def test_clusters_of_any_length_give_finite_scores(variant: Variant, length: float) -> None:
    table = Table(np.full((2, 3), length), np.array([5.0, 0.0]))
    scores = ThrustScore(table, variant)(np.array([[length] * 3, [0.0] * 3, [1.0] * 3]))
    assert np.isfinite(scores.astype(np.float32)).all()


# k-means: what its clusters are, and where there are fewer distinct vectors than clusters.


@given(seed=SEEDS, k=st.integers(1, 8), count=st.integers(1, 30), distinct=st.integers(1, 30))
@settings(max_examples=40)
def test_centroids_are_the_means_of_their_members_and_each_vector_is_with_the_nearest(
    seed: int, k: int, count: int, distinct: int
) -> None:
    random = np.random.default_rng(seed)
    points = random.normal(size=(distinct, 3))[random.integers(0, distinct, count)]
    found = kmeans(points, k, seed)
    assert 1 <= len(found.centroids) <= min(k, len(np.unique(points, axis=0)))
    assert found.sizes.sum() == count
    assert found.sizes.min() >= 1
    apart = np.linalg.norm(points[:, None] - found.centroids, axis=2)
    np.testing.assert_allclose(apart[np.arange(count), found.members], apart.min(axis=1), atol=1e-7)
    for row, (centroid, inertia) in enumerate(zip(found.centroids, found.inertia, strict=True)):
        members = points[found.members == row]
        np.testing.assert_allclose(centroid, members.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(inertia, ((members - centroid) ** 2).sum(), atol=1e-9)
