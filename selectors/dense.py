"""Dense retrieval by the dot product of passages and questions.

With Contriever's vectors (the mean over token states, not normalised) this is the retriever of Adaptive Retrieval
(section 5); with vectors of unit length the dot product is the cosine. The search looks at every vector.

The vectors of a small corpus are kept exact, in memory. Those of a large one are bytes in a file that is mapped into
memory, with a scale for each passage. That is a quarter of the space (16 GB instead of 64 for Wikipedia's 21 million
passages of 768 dimensions), of which the system keeps in memory what fits.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcard import cache
from kcard.batching import batched
from kcard.errors import CorpusError
from kcard.interfaces import Array, Evidence
from kcard.io import locked, write_text
from kcard.types import Source

Embed = Callable[[Sequence[str]], Array]
MAX_EXACT_VECTORS = 100_000  # those of more texts are rounded to bytes
WRITE_BATCH = 4096  # texts that are embedded and written at a time; an interrupted run goes on after them
SEARCH_BATCH = 32_768  # vectors that are compared at a time
MAX_BYTE = 127  # stands for the largest number of a vector


class DenseCorpus(Evidence):
    """Source texts that are retrieved by their vectors; equal scores keep the order of the sources.

    embed   maps texts to vectors, shape (n, d)
    model   the digest of the encoder; vectors are cached under it
    exact   texts, up to which vectors are exact (kcard.cache); those of more are rounded to bytes (Int8Vectors)

    Raises CorpusError if there is no text, or no space for the vectors.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        embed: Embed,
        model: str,
        name: str = "corpus",
        *,
        exact: int = MAX_EXACT_VECTORS,
    ) -> None:
        if not sources:
            raise CorpusError(f"evidence {name!r} has no text: add at least one sentence")
        self.name = name
        self._sources, self._embed, self._model = sources, embed, model
        texts = (source.in_context for source in sources)
        if len(sources) <= exact:
            self._vectors: Array | Int8Vectors = cache.remembered_embeddings(model, [*texts], embed)
        else:
            digest = hashlib.sha256(model.encode())
            for source in sources:
                digest.update(hashlib.sha256(source.in_context.encode("utf-8", "surrogatepass")).digest())
            folder = cache.folder() / "dense" / digest.hexdigest()
            self._vectors = Int8Vectors.build(folder, texts, len(sources), embed, name)

    def __len__(self) -> int:
        return len(self._sources)

    def find(self, claim: str, k: int) -> list[Source]:
        """Return the `k` sources with the largest dot products, which may be any number; all if there are fewer."""
        (sources,) = self.find_all([claim], k)
        return sources

    def find_all(self, claims: Sequence[str], k: int) -> list[list[Source]]:
        """Return the same for each claim; of a large corpus, one pass over the vectors serves all."""
        if not claims or k < 1:
            return [[] for _ in claims]
        queries = cache.remembered_embeddings(self._model, claims, self._embed)
        if isinstance(self._vectors, Int8Vectors):
            best = self._vectors.search(queries, k)
        else:  # one by one, so that a score does not depend on the other claims
            scores = np.stack([self._vectors @ query for query in queries])
            best = _merged([(0, scores)], k)
        sources = []
        for ranked in best:
            sources.append([replace(self._sources[row], score=score) for row, score in ranked])
        return sources


@dataclass(frozen=True)
class Int8Vectors:
    """Vectors as bytes times a scale each: codes, int8, shape (n, d), mapped from a file; scales, shape (n,)."""

    codes: npt.NDArray[np.int8]
    scales: Array

    @classmethod
    def build(cls, folder: Path, texts: Iterable[str], count: int, embed: Embed, name: str) -> "Int8Vectors":
        """Return the vectors in the folder; what is missing is embedded and added, block by block.

        Raises CorpusError if they can't be written.
        """
        progress = folder / "progress.json"
        codes_file = folder / "codes.int8"
        scales_file = folder / "scales.f32"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder), codes_file.open("ab") as codes, scales_file.open("ab") as scales:
                rows, width = 0, 0
                with suppress(OSError, ValueError, KeyError):
                    state = json.loads(progress.read_text(encoding="utf-8"))
                    rows, width = state["rows"], state["width"]
                # After an interruption, a block that was begun is written again.
                codes.truncate(rows * width)
                scales.truncate(4 * rows)
                for block in batched(islice(texts, rows, None), WRITE_BATCH):
                    vectors = np.asarray(embed(block), np.float32)
                    width = vectors.shape[1]
                    largest = np.maximum(np.abs(vectors).max(axis=1), 1e-12)
                    codes.write(np.rint(vectors / largest[:, None] * MAX_BYTE).astype(np.int8).tobytes())
                    scales.write((largest / MAX_BYTE).astype(np.float32).tobytes())
                    codes.flush()
                    scales.flush()
                    rows += len(block)
                    write_text(progress, json.dumps({"rows": rows, "width": width}))
                return cls(
                    np.memmap(codes_file, np.int8, "r", shape=(count, width)),
                    np.fromfile(scales_file, np.float32, count),
                )
        except OSError as error:
            raise CorpusError(
                f"the vectors of {name} can't be kept in {folder}: {error.strerror}; KCARD_HOME names another place"
            ) from error

    def search(self, queries: Array, k: int) -> list[list[tuple[int, float]]]:
        """Return the rows and scores of the k largest dot products of each query, shape (q, d), best first."""

        def blocks() -> Iterator[tuple[int, Array]]:
            for start in range(0, len(self.codes), SEARCH_BATCH):
                codes = self.codes[start : start + SEARCH_BATCH].astype(np.float32)
                yield start, (queries @ codes.T) * self.scales[start : start + SEARCH_BATCH]

        return _merged(blocks(), k)


def _merged(blocks: Iterable[tuple[int, Array]], k: int) -> list[list[tuple[int, float]]]:
    """Return the best k rows of each query. `blocks`: the first row and the scores, shape (q, rows), of each part."""
    best: list[list[tuple[int, float]]] = []
    for start, scores in blocks:
        best = best or [[] for _ in scores]
        for ranked, row in zip(best, scores, strict=True):
            # Of equal scores at the border all are taken, so that the first ones win.
            candidates = np.arange(len(row))
            if k < len(row):
                border = np.partition(row, -k)[-k]
                candidates = np.flatnonzero(row >= border)
            for i in candidates.tolist():
                ranked.append((start + i, float(row[i])))
            ranked.sort(key=lambda pair: (-pair[1], pair[0]))
            del ranked[k:]
    return best
