"""k-means: what its clusters are, and where there are fewer distinct vectors than clusters."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kcard.gates.thrust import kmeans

SEEDS = st.integers(0, 2**32 - 1)


@given(seed=SEEDS, k=st.integers(1, 8), count=st.integers(1, 30), distinct=st.integers(1, 30))
@settings(max_examples=60)
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


def test_clusters_that_lie_apart_are_found() -> None:
    random = np.random.default_rng(0)
    middles = random.normal(size=(4, 16)) * 10
    points = np.repeat(middles, 25, axis=0) + random.normal(size=(100, 16)) * 0.1
    found = kmeans(points, 4)
    assert [len(set(found.members[i : i + 25])) for i in range(0, 100, 25)] == [1, 1, 1, 1]
    assert found.sizes.tolist() == [25, 25, 25, 25]


def test_equal_vectors_are_one_cluster_and_a_seed_gives_the_same_again() -> None:
    assert kmeans(np.ones((7, 3)), 3).sizes.tolist() == [7]
    points = np.random.default_rng(1).normal(size=(50, 4))
    np.testing.assert_array_equal(kmeans(points, 4, 3).members, kmeans(points, 4, 3).members)
