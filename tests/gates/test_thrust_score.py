"""The Thrust score against equation 1 of the paper, written out literally and slowly, and what the paper says of it."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kcard.gates.thrust import CLOSE, VARIANTS, Table, ThrustScore, Variant

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
@settings(max_examples=40)
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


@pytest.mark.parametrize("variant", VARIANTS)
@given(seed=SEEDS)
@settings(max_examples=15)
def test_the_order_of_clusters_and_of_queries_does_not_matter(variant: Variant, seed: int) -> None:
    table, queries = some(seed)
    random = np.random.default_rng(seed)
    clusters, rows = random.permutation(6), random.permutation(4)
    shuffled = ThrustScore(Table(table.centroids[clusters], table.weights[clusters]), variant)
    np.testing.assert_allclose(shuffled(queries[rows]), ThrustScore(table, variant)(queries)[rows], rtol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
@given(seed=SEEDS)
@settings(max_examples=15)
def test_a_query_scores_the_same_alone_as_among_others(variant: Variant, seed: int) -> None:
    table, queries = some(seed, queries=9)
    score = ThrustScore(table, variant)
    alone = np.concatenate([score(query[None]) for query in queries])
    np.testing.assert_allclose(alone, score(queries), rtol=1e-7)


@given(seed=SEEDS, factor=st.floats(1e-3, 1e3))
@settings(max_examples=30)
def test_stretching_the_space_divides_the_score_by_the_square(seed: int, factor: float) -> None:
    table, queries = some(seed)
    queries[0] = table.centroids[0]
    stretched = ThrustScore(Table(table.centroids * factor, table.weights))(queries * factor)
    np.testing.assert_allclose(stretched * factor**2, ThrustScore(table)(queries), rtol=1e-5)


@given(seed=SEEDS)
@settings(max_examples=30)
def test_turning_and_shifting_the_space_changes_nothing(seed: int) -> None:
    table, queries = some(seed)
    random = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(random.normal(size=(5, 5)))
    shift = random.normal(size=5)
    moved = ThrustScore(Table(table.centroids @ turn + shift, table.weights))(queries @ turn + shift)
    np.testing.assert_allclose(moved, ThrustScore(table)(queries), rtol=1e-5)


@given(seed=SEEDS, factor=st.floats(0.01, 100))
@settings(max_examples=20)
def test_the_score_grows_with_the_sizes(seed: int, factor: float) -> None:
    table, queries = some(seed)
    larger = ThrustScore(Table(table.centroids, table.weights * factor))(queries)
    np.testing.assert_allclose(larger, ThrustScore(table)(queries) * factor, rtol=1e-7)


@given(seed=SEEDS)
@settings(max_examples=30)
def test_first_principle_near_one_cluster_its_pull_outweighs_all_others(seed: int) -> None:
    """Section 2.2: the nearest cluster's term dominates, and the score is high."""
    table, _ = some(seed)
    random = np.random.default_rng(seed)
    direction = random.normal(size=5)
    direction /= np.linalg.norm(direction)
    scale = np.linalg.norm(table.centroids - table.centroids[0], axis=1)[1:].min()
    assume(scale > 0.01 * np.linalg.norm(table.centroids, axis=1).max())
    steps = np.array([0.01, 0.003, 0.001]) * scale
    scores = ThrustScore(table)(table.centroids[0] + steps[:, None] * direction)
    assert (np.diff(scores) > 0).all()
    np.testing.assert_allclose(scores, table.weights[0] / steps**2 / 6, rtol=0.1)


@given(seed=SEEDS)
@settings(max_examples=30)
def test_second_principle_far_from_all_clusters_the_score_vanishes_with_the_square(seed: int) -> None:
    table, _ = some(seed)
    direction = np.random.default_rng(seed).normal(size=5)
    direction /= np.linalg.norm(direction)
    extent = np.abs(table.centroids - table.centroids.mean(axis=0)).max()
    far = np.array([1e3, 1e4]) * max(extent, 1e-3)
    scores = ThrustScore(table)(table.centroids.mean(axis=0) + far[:, None] * direction)
    np.testing.assert_allclose(scores * far**2, table.weights.mean(), rtol=0.05)


@given(seed=SEEDS, clusters=st.integers(1, 6))
@settings(max_examples=30)
def test_third_principle_pulls_in_opposite_directions_cancel_out(seed: int, clusters: int) -> None:
    """Clusters on both sides, as where the sample does not cluster: nothing is left, as it would be on one side."""
    table, queries = some(seed, clusters)
    query, centroids = queries[0], table.centroids
    assume(np.linalg.norm(centroids - query, axis=1).min() > 0.01 * np.abs(centroids).max())
    mirrored = 2 * query - centroids
    weights = np.concatenate([table.weights, table.weights])
    around = ThrustScore(Table(np.concatenate([centroids, mirrored]), weights))(query[None])
    strength = ThrustScore(Table(centroids, table.weights), "without-direction")(query[None])
    assert around[0] < 1e-6 * strength[0]


def test_third_principle_many_clusters_in_random_directions_pull_less_than_on_one_side() -> None:
    random = np.random.default_rng(0)
    around = random.normal(size=(200, 20))
    around /= np.linalg.norm(around, axis=1, keepdims=True)
    aside = np.abs(around)
    query, sizes = np.zeros((1, 20)), np.ones(200)
    assert ThrustScore(Table(around, sizes))(query) < ThrustScore(Table(aside, sizes))(query) / 5


@pytest.mark.parametrize("variant", VARIANTS)
@given(seed=SEEDS, row=st.integers(0, 5))
@settings(max_examples=15)
def test_on_a_centroid_the_score_is_finite_and_very_high(variant: Variant, seed: int, row: int) -> None:
    table, queries = some(seed)
    score = ThrustScore(table, variant)
    on = score(table.centroids[row : row + 1])[0]
    assert np.isfinite(on)
    assert np.isfinite(np.float32(on))
    # A thousand times nearer than a hundredth of their length: a million times the pull, over weights of 1 to 59.
    length = np.sqrt((table.centroids**2).sum(axis=1).mean())
    nearest = np.linalg.norm(queries[:, None] - table.centroids, axis=2).min(axis=1)
    far = queries[nearest > 0.01 * length]
    assume(len(far) > 0)
    if variant != "without-distance":
        assert on > 1000 * score(far).max()


def test_on_a_centroid_rounding_in_single_precision_does_not_matter() -> None:
    random = np.random.default_rng(0)
    centroids = random.normal(size=(10, 384)).astype(np.float32)
    score = ThrustScore(Table(centroids.astype(np.float64), np.arange(1.0, 11)))
    noisy = centroids * (1 + 1e-7 * random.normal(size=centroids.shape).astype(np.float32))
    assert (score(noisy) == score(centroids)).all()
    expected = np.arange(1, 11) / 10 / (CLOSE**2 * (centroids**2).sum(axis=1).mean())
    np.testing.assert_allclose(score(centroids), expected, rtol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("length", [0, 1e-12, 1e9])
def test_clusters_of_any_length_give_finite_scores(variant: Variant, length: float) -> None:
    table = Table(np.full((2, 3), length), np.array([5.0, 0.0]))
    scores = ThrustScore(table, variant)(np.array([[length] * 3, [0.0] * 3, [1.0] * 3]))
    assert np.isfinite(scores.astype(np.float32)).all()
