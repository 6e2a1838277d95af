"""Evidence: texts that may support or refute a claim, found by BM25 in a corpus."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.protocols import Evidence
from kcard.selectors.sources import read_sources

__all__ = ["Corpus", "Union"]

TOKEN = re.compile(r"[^\W_]+")
# Characters of scripts that put no space between words: each is a token of its own.
UNSPACED = re.compile(r"([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])")


class Corpus:
    """A BM25 index over source texts, in memory. Equal scores stand in the order of the sources."""

    def __init__(self, sources: Sequence[Source], name: str = "corpus") -> None:
        """Raises CorpusError where no source has a word in it."""
        import bm25s

        self.name = name
        self._sources = [source for source in sources if _tokens(source.text)]
        if not self._sources:
            raise CorpusError(
                f"evidence {name!r} has no text: give a file or folder of .txt, .md or .jsonl with some"
            )
        documents = [_tokens(source.text) for source in self._sources]
        self._ids = {word: i for i, word in enumerate(sorted(set(chain.from_iterable(documents))))}
        self._index: Any = bm25s.BM25()
        ids = [[self._ids[word] for word in document] for document in documents]
        self._index.index((ids, dict(self._ids)), create_empty_token=False, show_progress=False)

    @classmethod
    def from_path(cls, path: str | Path, name: str | None = None) -> "Corpus":
        """Index a file or folder (see sources.py); CorpusError where it is missing, unreadable or empty."""
        return cls(read_sources(path), name or Path(path).name)

    def __len__(self) -> int:
        return len(self._sources)

    def find(self, claim: str, k: int) -> list[Source]:
        """At most `k` sources that share a word with the claim, best first, with their BM25 scores."""
        words = sorted({self._ids[word] for word in _tokens(claim) if word in self._ids})
        if not words or k < 1:
            return []
        scores = self._index.get_scores_from_ids(words)
        best = np.argsort(-scores, kind="stable")[:k].tolist()
        return [replace(self._sources[i], score=float(scores[i])) for i in best if scores[i] > 0]


@dataclass(frozen=True)
class Union:
    """Several evidences as one. BM25 scores of two indexes can't be compared, so results alternate by rank."""

    parts: Sequence[Evidence]

    def find(self, claim: str, k: int) -> list[Source]:
        """At most `k` sources: the best of each part, then the second of each, and so on; a text comes once."""
        ranks = zip_longest(*(part.find(claim, k) for part in self.parts))
        found: dict[str, Source] = {}
        for source in chain.from_iterable(ranks):
            if source is not None:
                found.setdefault(source.text, source)
        return list(found.values())[:k]


def _tokens(text: str) -> list[str]:
    """Lower-case words and figures ("7th" is one). No stop word is dropped, nothing is stemmed (docs/selectors.md)."""
    return TOKEN.findall(UNSPACED.sub(r" \1 ", text.lower()))
