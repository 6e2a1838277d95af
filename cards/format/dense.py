"""The dense index of a card: the sentence embedding of each passage, kept as bytes beside the BM25 index.

index/embeddings.npy    int8, shape (passages, 384): vectors of unit length, times 127
index/embeddings.json   which encoder made them, by name and sha256
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard import encoder
from kcard.errors import CardError
from kcard.protocols import Array

__all__ = ["Dense", "Known", "load", "write"]

VECTORS, ENCODER = "embeddings.npy", "embeddings.json"
SCALE = 127
AT_ONCE = 256  # passages embedded between two reports of progress
ROWS = 16_384  # that are compared at a time


@dataclass(frozen=True)
class Known:
    """Embeddings that need not be made again: `place` of a text among `rows`, int8, by its digest."""

    place: Mapping[bytes, int]
    rows: "npt.NDArray[np.int8]"

    @classmethod
    def of(cls, texts: Iterable[str], folder: Path) -> "Known | None":
        """Those of an index of `texts`; None where it is of another encoder, damaged or of other texts."""
        try:
            found = load(folder)
        except CardError:
            return None
        place = {_digest(text): row for row, text in enumerate(texts)} if found is not None else {}
        return None if found is None or len(place) > len(found) else cls(place, found.rows)


def write(
    texts: Iterable[str],
    count: int,
    folder: Path,
    report: Callable[[int], None] | None = None,
    known: Known | None = None,
) -> None:
    """Embed `count` texts, but those that are `known`, into the folder of an index. `report`: called with how many are
    done."""
    shape = (count, encoder.DIMENSIONS)
    vectors = np.lib.format.open_memmap(folder / VECTORS, mode="w+", dtype=np.int8, shape=shape)
    done = 0
    for part in _parts(texts):
        vectors[done : done + len(part)] = _embedded(part, known)
        done += len(part)
        if report:
            report(done)
    vectors.flush()
    made = {"encoder": encoder.NAME, "sha256": encoder.SHA256}
    (folder / ENCODER).write_text(json.dumps(made) + "\n", encoding="utf-8")


def _embedded(texts: Sequence[str], known: Known | None) -> "npt.NDArray[np.int8]":
    places = [-1 if known is None else known.place.get(_digest(text), -1) for text in texts]
    found = np.empty((len(texts), encoder.DIMENSIONS), np.int8)
    new = [row for row, place in enumerate(places) if place < 0]
    found[new] = np.rint(encoder.embed([texts[row] for row in new]) * SCALE)
    if known is not None:
        kept = [row for row, place in enumerate(places) if place >= 0]
        found[kept] = known.rows[[places[row] for row in kept]]
    return found


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def load(folder: Path) -> "Dense | None":
    """The dense index of a folder; None where there is none, or another encoder made it.

    Raises CardError where it is damaged.
    """
    if not (folder / ENCODER).exists():
        return None
    try:
        made = json.loads((folder / ENCODER).read_text(encoding="utf-8"))
        vectors: Any = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
        if vectors.dtype != np.int8 or vectors.ndim != 2 or vectors.shape[1] != encoder.DIMENSIONS:
            raise ValueError(f"its embeddings have shape {vectors.shape} and type {vectors.dtype}")
    except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
        raise CardError(f"{folder} is damaged: {error}: train the card again") from error
    return Dense(vectors) if made.get("sha256") == encoder.SHA256 else None


class Dense:
    """Embeddings of passages, mapped from disk."""

    def __init__(self, vectors: "npt.NDArray[np.int8]") -> None:
        self._vectors = vectors

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def rows(self) -> "npt.NDArray[np.int8]":
        """Shape (n, 384), each as many times as long as a unit vector as SCALE says."""
        return self._vectors

    def sample(self, most: int) -> Array:
        """At most so many of the vectors, spread over the passages, shape (n, 384)."""
        found: Array = np.asarray(self._vectors[:: -(-len(self) // most)], np.float32) / np.float32(SCALE)
        return found

    def cosines(self, queries: Array) -> Array:
        """How near each passage lies to each query, shape (queries, passages), in [-1, 1]; of unit vectors (n, 384)."""
        found = np.empty((len(queries), len(self)), np.float32)
        for start in range(0, len(self), ROWS):
            rows = np.asarray(self._vectors[start : start + ROWS], np.float32)
            found[:, start : start + ROWS] = queries @ rows.T / SCALE
        return found


def _parts(texts: Iterable[str]) -> Iterator[Sequence[str]]:
    rest = iter(texts)
    while part := [*islice(rest, AT_ONCE)]:
        yield part
