"""The words of some texts, counted: all that a BM25 index is made of, and what can be kept to make it again."""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard.words import Analyzer, index_terms

__all__ = ["Postings"]

Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Postings:
    """Rows of texts. An entry is a word of a row; entries stand row by row.

    vocabulary  the distinct words, in the order in which they first come
    entries     how many distinct words each row has, shape (rows,)
    lengths     how many words, shape (rows,)
    ids, times  of each entry: its word's place in the vocabulary, and how often it is in the row
    """

    vocabulary: tuple[str, ...]
    entries: Numbers
    lengths: Numbers
    ids: Numbers
    times: Numbers

    @classmethod
    def of(cls, texts: Iterable[str], analyze: Analyzer | None = None) -> "Postings":
        """Count the words of the texts, read once, as `analyze` finds them; None: as an index without stems does."""
        analyze = analyze or index_terms()
        known: dict[str, int] = {}
        entries, lengths, ids, times = array("i"), array("i"), array("i"), array("i")
        for text in texts:
            row = analyze(text)
            counted = Counter(row)
            lengths.append(len(row))
            entries.append(len(counted))
            ids.extend(known.setdefault(word, len(known)) for word in counted)
            times.extend(counted.values())
        return cls(tuple(known), *(np.asarray(values, np.int32) for values in (entries, lengths, ids, times)))

    @property
    def found(self) -> "npt.NDArray[np.int64]":
        """In how many rows each word of the vocabulary is."""
        return np.bincount(self.ids, minlength=len(self.vocabulary))

    def arrays(self) -> dict[str, "npt.NDArray[Any]"]:
        """As plain arrays, of which `of_arrays` makes it again."""
        text = np.frombuffer("\n".join(self.vocabulary).encode(), np.uint8)
        return {
            "vocabulary": text,
            "entries": self.entries,
            "lengths": self.lengths,
            "ids": self.ids,
            "times": self.times,
        }

    @classmethod
    def of_arrays(cls, found: Any) -> "Postings":
        """Raises ValueError or KeyError where the arrays don't fit each other."""
        text = found["vocabulary"].tobytes().decode()
        vocabulary = tuple(text.split("\n")) if text else ()
        made = cls(vocabulary, *(found[name] for name in ("entries", "lengths", "ids", "times")))
        fits = len(made.entries) == len(made.lengths) and len(made.ids) == len(made.times)
        if not fits or made.entries.sum() != len(made.ids):
            raise ValueError("its arrays do not fit each other")
        if len(made.ids) and not 0 <= made.ids.min() <= made.ids.max() < len(vocabulary):
            raise ValueError("it names words that do not exist")
        return made
