"""Evidence: texts that may support or refute a claim, found by BM25 in a corpus, or by their hashes alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.index import Index
from kcard.protocols import Evidence
from kcard.selectors.sentences import split
from kcard.selectors.sources import read_sources
from kcard.words import passage_digest

__all__ = ["Corpus", "Hashes", "Union"]


class Corpus:
    """Source texts and their BM25 index. Equal scores stand in the order of the sources."""

    def __init__(self, sources: Sequence[Source], name: str = "corpus", index: Index | None = None) -> None:
        """`index`: one of these very sources, where there is one. Raises CorpusError where none has a word."""
        self.name = name
        self._sources = sources
        self._index = index or Index.build(source.text for source in sources)
        if not len(self._index):
            raise CorpusError(
                f"evidence {name!r} has no text: give a file or folder of .txt, .md or .jsonl with some"
            )

    @classmethod
    def from_path(cls, path: str | Path, name: str | None = None) -> "Corpus":
        """Index a file or folder (see sources.py); CorpusError where it is missing, unreadable or empty."""
        return cls(read_sources(path), name or Path(path).name)

    def __len__(self) -> int:
        return len(self._sources)

    def find(self, claim: str, k: int) -> list[Source]:
        """At most `k` sources that share a word with the claim, best first, with their BM25 scores."""
        found = self._index.search(claim, k)
        return [replace(self._sources[row], score=score) for row, score in found]


@dataclass(frozen=True)
class Hashes:
    """Source texts of which only the hashes are known: a claim, or a sentence of it, is one word for word.

    `places`: by `passage_digest`, where the text stands. All else is unknown.
    """

    places: Mapping[str, Source]

    def find(self, claim: str, k: int) -> list[Source]:
        """At most `k` of the claim and its sentences, in that order, that are sources, with their places."""
        parts = dict.fromkeys([claim.strip(), *split(claim)])
        known = [(part, self.places.get(passage_digest(part))) for part in parts]
        return [replace(place, text=part, score=1.0) for part, place in known if place is not None][
            : max(k, 0)
        ]


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
