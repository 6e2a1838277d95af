"""k-means: Lloyd's algorithm from seeds chosen by k-means++ (Arthur and Vassilvitskii, 2007), the best of several runs.

A few hundred vectors are all that it is meant for. scikit-learn's takes longer to import than this takes to run; the
tests hold its results against scikit-learn's.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Clusters", "kmeans"]

Matrix = npt.NDArray[np.float64]
RUNS = 10
STEPS = 100


@dataclass(frozen=True)
class Clusters:
    """The parts of a set of vectors.

    centroids  their means, shape (k, d)
    members    the cluster of each vector, shape (n,)
    inertia    summed squared distance of each cluster's members to its centroid, shape (k,)
    """

    centroids: Matrix
    members: npt.NDArray[np.intp]
    inertia: Matrix

    @property
    def sizes(self) -> Matrix:
        """Members of each cluster, shape (k,); none is empty."""
        return np.bincount(self.members, minlength=len(self.centroids)).astype(np.float64)


def kmeans(points: Matrix, k: int, seed: int = 0, runs: int = RUNS) -> Clusters:
    """At most `k` clusters of `points`, shape (n, d); fewer where fewer vectors are distinct. n and k are at least 1.

    The same points in the same order, and the same seed, give the same clusters.
    """
    random = np.random.default_rng(seed)
    # About their mean, distances by scalar products lose no digits to a common offset.
    middle = points.mean(axis=0)
    centred = points - middle
    found = [_lloyd(centred, _seeds(centred, k, random)) for _ in range(runs if k > 1 else 1)]
    best = min(found, key=lambda clusters: float(clusters.inertia.sum()))
    return Clusters(best.centroids + middle, best.members, best.inertia)


def _seeds(points: Matrix, k: int, random: np.random.Generator) -> Matrix:
    """At most k of the points, each drawn with a probability by its squared distance to those before."""
    chosen = [points[random.integers(len(points))]]
    far = ((points - chosen[0]) ** 2).sum(axis=1)
    while len(chosen) < k and far.sum() > 0:
        chosen.append(points[random.choice(len(points), p=far / far.sum())])
        far = np.minimum(far, ((points - chosen[-1]) ** 2).sum(axis=1))
    return np.stack(chosen)


def _lloyd(points: Matrix, centroids: Matrix) -> Clusters:
    """Assign to the nearest centroid and take means, in turns, until nothing moves. A cluster left empty is dropped."""
    members = np.full(len(points), -1)
    for _ in range(STEPS):
        nearest = ((centroids**2).sum(axis=1) - 2 * points @ centroids.T).argmin(axis=1)
        kept, nearest = np.unique(nearest, return_inverse=True)
        if len(kept) == len(centroids) and (nearest == members).all():
            break
        members = nearest
        of = np.eye(len(kept))[members]
        centroids = of.T @ points / of.sum(axis=0)[:, None]
    apart = ((points - centroids[members]) ** 2).sum(axis=1)
    inertia: Matrix = np.bincount(members, weights=apart, minlength=len(centroids)).astype(np.float64)
    return Clusters(centroids, members, inertia)
