"""BM25 index of passages (bm25s).

Scores are those of bm25s (Lucene's variant), and files have its format. bm25s itself, whose import takes longer than a
search, is only used to build an index in memory.
"""

import json
import os
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard.batching import batched
from kcard.errors import CardError
from kcard.text import Analyzer, index_terms

# Word counts of texts, from which a BM25 index is made; they can be stored to make it again.

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Postings:
    """Word counts of rows of texts. An entry is a distinct word of a row; entries are sorted by row.

    vocabulary  the distinct words, in order of first occurrence
    entries     number of distinct words of each row, shape (rows,)
    lengths     number of words of each row, shape (rows,)
    ids, times  of each entry: the index of its word in the vocabulary, and its frequency in the row
    """

    vocabulary: tuple[str, ...]
    entries: Numbers
    lengths: Numbers
    ids: Numbers
    times: Numbers

    @classmethod
    def of(cls, texts: Iterable[str], analyze: Analyzer | None = None) -> "Postings":
        """Count the words of the texts, which are read once. `analyze`: returns the words; None: without stemming."""
        analyze = analyze or index_terms()
        places: dict[str, int] = {}
        entries, lengths, ids, times = array("i"), array("i"), array("i"), array("i")
        for text in texts:
            row = analyze(text)
            counted = Counter(row)
            lengths.append(len(row))
            entries.append(len(counted))
            ids.extend(places.setdefault(word, len(places)) for word in counted)
            times.extend(counted.values())
        return cls(
            tuple(places), *(np.asarray(values, np.int32) for values in (entries, lengths, ids, times))
        )

    @property
    def document_frequencies(self) -> "npt.NDArray[np.int64]":
        """Return the number of rows that contain each word of the vocabulary, shape (words,)."""
        return np.bincount(self.ids, minlength=len(self.vocabulary))

    def arrays(self) -> dict[str, "npt.NDArray[Any]"]:
        """Return plain arrays, from which `of_arrays` restores it."""
        text = np.frombuffer("\n".join(self.vocabulary).encode(), np.uint8)
        return {
            "vocabulary": text,
            "entries": self.entries,
            "lengths": self.lengths,
            "ids": self.ids,
            "times": self.times,
        }

    @classmethod
    def of_arrays(cls, arrays: Any) -> "Postings":
        """Restore word counts from `arrays`. Raises ValueError or KeyError if the arrays are inconsistent."""
        text = arrays["vocabulary"].tobytes().decode()
        vocabulary = tuple(text.split("\n")) if text else ()
        postings = cls(vocabulary, *(arrays[name] for name in ("entries", "lengths", "ids", "times")))
        fits = len(postings.entries) == len(postings.lengths) and len(postings.ids) == len(postings.times)
        if not fits or postings.entries.sum() != len(postings.ids):
            raise ValueError("its arrays do not fit each other")
        if len(postings.ids) and not 0 <= postings.ids.min() <= postings.ids.max() < len(vocabulary):
            raise ValueError("it names words that do not exist")
        return postings


Counts = npt.NDArray[np.int64]

BM25: Any = {"k1": 1.5, "b": 0.75, "delta": 0.5, "method": "lucene", "idf_method": "lucene"}
ANALYSIS = "analysis.json"
TEXTS_AT_A_TIME = 4096  # texts whose words are counted at a time


class Index:
    """BM25 over the rows of a text collection. A text without words is a row that no search finds.

    With a `stemmer`, words are compared by their stems (kcard.text); an option of a command, such as "-R", counts as a
    word besides its letters.
    """

    def __init__(self, matrix: "_Matrix", stemmer: str | None = None) -> None:
        self._matrix = matrix
        self._words = index_terms(stemmer)

    @classmethod
    def build(cls, texts: Iterable[str], stemmer: str | None = None) -> "Index":
        """Index the texts, which are read once, in memory; this takes about six times their size."""
        import bm25s

        words = index_terms(stemmer)
        ids: dict[str, int] = {}
        rows = [[ids.setdefault(word, len(ids)) for word in words(text)] for text in texts]
        if not ids:
            return cls(EMPTY_MATRIX, stemmer)
        bm25 = bm25s.BM25(**BM25, backend="numpy", csc_backend="numpy")
        bm25.index((rows, ids), create_empty_token=False, show_progress=False)
        rows, starts, scores = (bm25.scores[key] for key in ("indices", "indptr", "data"))
        return cls(_Matrix(ids, rows, starts, scores, int(bm25.scores["num_docs"])), stemmer)

    @classmethod
    def load(cls, folder: Path) -> "Index":
        """Map an index that `write` wrote into memory. Raises CardError if it is not an index or is damaged."""
        path = folder / ANALYSIS
        try:
            matrix = _Matrix.load(folder)
            stemmer = str(json.loads(path.read_text(encoding="utf-8"))["stemmer"]) if path.exists() else None
            return cls(matrix, stemmer)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError) as error:
            raise CardError(
                f"{folder} is not an index or is damaged: {error}: train the card again"
            ) from error

    @classmethod
    def write(cls, texts: Iterable[str], folder: Path, stemmer: str | None = None) -> None:
        """Index texts, which are read twice, into a new folder: .npy arrays without pickles, and JSON.

        Memory holds only the words, and eight bytes per text; the arrays are on disk. Equal texts give equal bytes.
        Raises ValueError if no text has a word.
        """
        cls.merge(_Counted(texts, stemmer), folder)
        if stemmer:
            (folder / ANALYSIS).write_text(json.dumps({"stemmer": stemmer}) + "\n", encoding="utf-8")

    @classmethod
    def merge(cls, parts: Iterable[Postings], folder: Path) -> None:
        """Index texts from the word counts of their parts; the rows of the parts follow each other.

        The parts are iterated twice, one at a time. The bytes are the same as `write` makes of the texts.
        """
        ids: dict[str, int] = {}
        frequencies = np.zeros(0, np.int64)
        lengths = [np.zeros(0, np.int32)]
        for part in parts:
            places = np.array([ids.setdefault(word, len(ids)) for word in part.vocabulary], np.int64)
            if len(ids) > len(frequencies):  # grow to twice the size, so that copies are rare
                frequencies = np.concatenate(
                    [frequencies, np.zeros(2 * len(ids) - len(frequencies), np.int64)]
                )
            frequencies[places] += part.document_frequencies
            lengths.append(part.lengths)
        if not ids:
            raise ValueError("no text has a word")
        every = np.concatenate(lengths)
        folder.mkdir(parents=True, exist_ok=True)
        _write_arrays(parts, ids, frequencies[: len(ids)], every, folder)
        (folder / "vocab.index.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
        params = {**BM25, "dtype": "float32", "int_dtype": "int32", "num_docs": len(every)}
        (folder / "params.index.json").write_text(json.dumps(params, indent=4), encoding="utf-8")

    def __len__(self) -> int:
        """Count the rows; 0 if no text has a word."""
        return self._matrix.count

    def scores(self, text: str) -> "npt.NDArray[np.float32]":
        """Score how well each row fits `text`, shape (rows,), 0 and up; comparable within one search only.

        A repeated word counts once.
        """
        ids = self._matrix.ids
        return self._matrix.sums(sorted({ids[word] for word in self._words(text) if word in ids}))

    def search(self, text: str, k: int) -> list[tuple[int, float]]:
        """Return at most `k` (row, score) that share a word with `text`, best first, equal ones in order of rows."""
        scores = self.scores(text)
        if k < 1:
            return []
        rows = np.flatnonzero(scores > 0)
        if len(rows) > k:
            rows = rows[scores[rows] >= np.partition(scores[rows], -k)[-k]]
        best = rows[np.argsort(-scores[rows], kind="stable")][:k]
        return [(int(row), float(scores[row])) for row in best]

    def best_possible(self, text: str) -> float:
        """Estimate the score of a row of average length that contains every word of `text` once.

        Scores divided by it can be compared across searches and indexes.
        """
        if not len(self):
            return 0.0
        ids, starts = self._matrix.ids, self._matrix.starts
        places = np.array([ids.get(word, -1) for word in dict.fromkeys(self._words(text))], dtype=np.int64)
        frequencies = np.where(places >= 0, starts[places + 1] - starts[places], 0)
        return float(_rarity(frequencies, len(self)).sum() / (1 + BM25["k1"]))


@dataclass(frozen=True)
class _Matrix:
    """The score of every word in every row that contains it, compressed by word, in the format of bm25s.

    ids     number of each word, from 0
    rows    the rows of each word in turn, shape (entries,); those of word w are rows[starts[w] : starts[w + 1]]
    starts  shape (words + 1,)
    scores  of the words in these rows, shape (entries,)
    count   of the rows of the collection
    """

    ids: Mapping[str, int]
    rows: "npt.NDArray[np.integer[Any]]"
    starts: "npt.NDArray[np.integer[Any]]"
    scores: "npt.NDArray[np.floating[Any]]"
    count: int

    @classmethod
    def load(cls, folder: Path) -> "_Matrix":
        """Map the arrays in `folder` into memory. Raises OSError, ValueError and others if they are not an index."""
        params, ids = (
            json.loads((folder / f"{name}.index.json").read_text(encoding="utf-8"))
            for name in ("params", "vocab")
        )
        rows, starts, scores = (
            np.load(folder / f"{name}.csc.index.npy", mmap_mode="r", allow_pickle=False)
            for name in ("indices", "indptr", "data")
        )
        if params["method"] != BM25["method"]:
            raise ValueError(f"its scores are of the method {params['method']!r}, not {BM25['method']!r}")
        matrix = cls(ids, rows, starts, scores, params["num_docs"])
        matrix.check()
        return matrix

    def check(self) -> None:
        """Raise ValueError unless the arrays are consistent, so that no search can reach beyond them."""
        rows, starts, scores, count = self.rows, self.starts, self.scores, self.count
        kinds = rows.dtype.kind + starts.dtype.kind + scores.dtype.kind
        if not (rows.ndim == starts.ndim == scores.ndim == 1 and kinds == "iif"):
            raise ValueError("its arrays are of another kind")
        if len(starts) != len(self.ids) + 1 or len(rows) != len(scores):
            raise ValueError("its arrays do not fit each other")
        if starts[0] != 0 or starts[-1] != len(rows):
            raise ValueError("its arrays do not fit each other")
        if sorted(self.ids.values()) != list(range(len(self.ids))) or (np.diff(starts) < 0).any():
            raise ValueError("its words do not fit its arrays")
        if not isinstance(count, int) or (len(rows) and not (rows.min() >= 0 and rows.max() < count)):
            raise ValueError("it names rows that do not exist")

    def sums(self, words: Iterable[int]) -> "npt.NDArray[np.float32]":
        """Return the sum of these words' scores in each row, shape (rows,); those of bm25s, bit for bit."""
        sums = np.zeros(self.count, np.float32)
        for word in words:
            place = slice(self.starts[word], self.starts[word + 1])
            sums[self.rows[place]] += self.scores[place]  # no row holds a word twice
        return sums


EMPTY_MATRIX = _Matrix({}, np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.float32), 0)


@dataclass
class _Counted(Iterable[Postings]):
    """Word counts of texts, in parts, recomputed on each iteration, except for the first part."""

    texts: Iterable[str]
    stemmer: str | None
    _first: Postings | None = None

    def __iter__(self) -> Iterator[Postings]:
        for number, part in enumerate(batched(self.texts, TEXTS_AT_A_TIME)):
            if number:
                yield Postings.of(part, index_terms(self.stemmer))
                continue
            if self._first is None:
                self._first = Postings.of(part, index_terms(self.stemmer))
            yield self._first


def _write_arrays(
    parts: Iterable[Postings],
    ids: Mapping[str, int],
    frequencies: Counts,
    lengths: "npt.NDArray[Any]",
    folder: Path,
) -> None:
    """Write the three arrays of bm25s: the rows of each word, in order, their scores, and where each word starts.

    frequencies: number of rows of each word; lengths: number of words of each row.
    """
    starts = np.concatenate([[0], np.cumsum(frequencies)])
    rows = _array(folder / "indices.csc.index.npy", int(starts[-1]), np.int32)
    scores = _array(folder / "data.csc.index.npy", int(starts[-1]), np.float32)
    rarity = _rarity(frequencies, len(lengths))
    saturation = BM25["k1"] * (1 - BM25["b"] + BM25["b"] * lengths / lengths.mean())
    free, first = starts[:-1].copy(), 0
    for part in parts:
        here = np.array([ids[word] for word in part.vocabulary], np.int64)
        by_word = np.argsort(part.ids, kind="stable")
        counts = part.document_frequencies
        begin = np.cumsum(counts) - counts
        word = part.ids[by_word]
        place = free[here[word]] + np.arange(len(word)) - begin[word]
        row = first + np.repeat(np.arange(len(part.entries)), part.entries)[by_word]
        times = part.times[by_word]
        rows[place] = row
        scores[place] = rarity[here[word]] * times / (times + saturation[row])
        free[here] += counts
        first += len(part.entries)
    rows.flush()
    scores.flush()
    np.save(folder / "indptr.csc.index.npy", starts)


def _rarity(frequencies: Counts, count: int) -> "npt.NDArray[np.float64]":
    """Return the inverse document frequency of words in `frequencies` of `count` rows."""
    rarity: npt.NDArray[np.float64] = np.log(1 + (count - frequencies + 0.5) / (frequencies + 0.5))
    return rarity


def _array(path: Path, length: int, kind: Any) -> "np.memmap[Any, Any]":
    mapped = np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=(length,))
    if sys.platform == "linux":
        # A full disk raises OSError here; if a mapped page found no space later, the process would be killed.
        with path.open("rb+") as stream:
            os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
    return mapped
