"""The words of a question as a vector of fixed size, which a card with an encoder prefix sees beside its embedding.

A sentence embedding blurs names and rare words, by which BM25 finds a passage. Each stem of the corpus has random signs
in SIZE dimensions, a hash of it; a question is the sum of its stems' signs, weighted by idf, at unit length: a random
projection of its tf-idf vector (Achlioptas, 2003, "Database-friendly random projections"). Words that the corpus lacks
count for nothing.
"""

import functools
import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from kcard.errors import CardError
from kcard.files import write_text
from kcard.protocols import Array
from kcard.words import analyzer

__all__ = ["SIZE", "WORDS", "WordSketch"]

WORDS = "words.json"
SIZE = 512  # bits of the longest BLAKE2b digest
STEMMER = "english"  # the sentence encoder's language


@dataclass(frozen=True)
class WordSketch:
    """`idf` of every stem of the corpus."""

    idf: Mapping[str, float]

    @classmethod
    def of_corpus(cls, texts: Sequence[str]) -> "WordSketch":
        """idf as in BM25 (Lucene's), over the passages `texts`."""
        frequency = Counter(stem for text in texts for stem in stems(text))
        count = len(texts)
        return cls(
            {s: round(math.log(1 + (count - n + 0.5) / (n + 0.5)), 4) for s, n in sorted(frequency.items())}
        )

    @classmethod
    def read(cls, folder: Path) -> "WordSketch":
        """Of the card in a folder; CardError where its file is damaged or missing."""
        path = folder / WORDS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["idf"]
            return cls({str(stem): float(idf) for stem, idf in found.items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            told = f"{path} must hold the idf of the card's word stems ({error}): train the card again"
            raise CardError(told) from error

    def write(self, folder: Path) -> None:
        text = json.dumps({"stemmer": STEMMER, "idf": dict(self.idf)}, ensure_ascii=False, indent=0)
        write_text(folder / WORDS, f"{text}\n")

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The place of each stem in the order of `idf`."""
        return {stem: place for place, stem in enumerate(self.idf)}

    def known(self, text: str) -> list[int]:
        """The numbers of the distinct stems of a text that the corpus has, ascending."""
        return sorted(self.number[stem] for stem in stems(text) if stem in self.number)

    def signs(self) -> Array:
        """Of every stem, (stems, SIZE), each row of unit length."""
        return np.stack([_signs(stem) for stem in self.idf])

    def __call__(self, texts: Sequence[str]) -> Array:
        """Sketches of `texts`, (n, SIZE), of unit length; zeros for a text without a known word."""
        found = np.zeros((len(texts), SIZE), dtype=np.float32)
        for row, text in zip(found, texts, strict=True):
            known = sorted(stems(text) & self.idf.keys())
            if known:
                weights = np.array([self.idf[stem] for stem in known], dtype=np.float32)
                row[:] = weights @ np.stack([_signs(stem) for stem in known]) / np.linalg.norm(weights)
        return found


def stems(text: str) -> set[str]:
    return set(analyzer(STEMMER)(text))


@functools.lru_cache(maxsize=20_000)
def _signs(stem: str) -> Array:
    digest = hashlib.blake2b(stem.encode(), digest_size=SIZE // 8).digest()
    bits = np.unpackbits(np.frombuffer(digest, np.uint8)).astype(np.float32)
    found: Array = (2 * bits - 1) / np.float32(math.sqrt(SIZE))
    return found
