"""k-means (scikit-learn's), where fewer vectors may be distinct than there are to be clusters."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Clusters", "kmeans"]

Matrix = npt.NDArray[np.float64]
RUNS = 10


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


def kmeans(points: Matrix, k: int, seed: int = 0) -> Clusters:
    """The best of ten runs; at most `k` clusters of `points`, shape (n, d). n and k are at least 1.

    The same points in the same order, and the same seed, give the same clusters.
    """
    from sklearn.cluster import KMeans

    distinct = len(np.unique(points, axis=0))
    found = KMeans(min(k, distinct), n_init=RUNS, tol=0, random_state=seed % 2**32).fit(points)
    apart = ((points - found.cluster_centers_[found.labels_]) ** 2).sum(axis=1)
    inertia = np.bincount(found.labels_, weights=apart).astype(np.float64)
    return Clusters(found.cluster_centers_, found.labels_, inertia)
