"""The dense index of a card: the static embedding of each passage, kept as bytes beside the BM25 index.

index/embeddings.npy    int8, shape (passages, 256): vectors of unit length, times 127
index/embeddings.json   which embeddings they are, by name and sha256
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard import static_embeddings
from kcard.batches import batched
from kcard.errors import CardError
from kcard.protocols import Array

__all__ = ["Dense", "load", "write"]

VECTORS, ENCODER = "embeddings.npy", "embeddings.json"
SCALE = 127
AT_ONCE = 1024  # passages that are embedded at a time
ROWS = 16_384  # that are compared at a time


def write(
    texts: Iterable[str], count: int, folder: Path, report: Callable[[int], None] | None = None
) -> None:
    """Embed `count` texts into the folder of an index. `report` is called with how many are done."""
    shape = (count, static_embeddings.DIMENSIONS)
    vectors = np.lib.format.open_memmap(folder / VECTORS, mode="w+", dtype=np.int8, shape=shape)
    done = 0
    for part in batched(texts, AT_ONCE):
        vectors[done : done + len(part)] = np.rint(static_embeddings.embed(part) * SCALE)
        done += len(part)
        if report:
            report(done)
    vectors.flush()
    record = {"encoder": static_embeddings.NAME, "sha256": static_embeddings.digest()}
    (folder / ENCODER).write_text(json.dumps(record) + "\n", encoding="utf-8")


def load(folder: Path) -> "Dense | None":
    """The dense index of a folder; None where there is none, or it has other embeddings than these.

    Raises CardError where it is damaged.
    """
    if not (folder / ENCODER).exists():
        return None
    try:
        record = json.loads((folder / ENCODER).read_text(encoding="utf-8"))
        vectors: Any = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
        if record.get("sha256") != static_embeddings.digest():
            return None
        if vectors.dtype != np.int8 or vectors.ndim != 2 or vectors.shape[1] != static_embeddings.DIMENSIONS:
            raise ValueError(f"its embeddings have shape {vectors.shape} and type {vectors.dtype}")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError) as error:
        raise CardError(f"{folder} is damaged: {error}: train the card again") from error
    return Dense(vectors)


class Dense:
    """Embeddings of passages, mapped from disk."""

    def __init__(self, vectors: "npt.NDArray[np.int8]") -> None:
        self._vectors = vectors

    def __len__(self) -> int:
        return len(self._vectors)

    def cosines(self, queries: Array) -> Array:
        """Return how near each passage lies to each query, shape (queries, passages), in [-1, 1]; of unit vectors
        (n, 256)."""
        cosines = np.empty((len(queries), len(self)), np.float32)
        for start in range(0, len(self), ROWS):
            rows = np.asarray(self._vectors[start : start + ROWS], np.float32)
            cosines[:, start : start + ROWS] = queries @ rows.T / SCALE
        return cosines
