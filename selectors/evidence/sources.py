"""Evidence: texts that may support or refute a claim, found by BM25 in a corpus, or by their hashes alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.index import Index
from kcard.lookup import find_all
from kcard.protocols import Evidence
from kcard.sentences import split
from kcard.words import passage_digest

__all__ = ["CorpusEvidence", "Hashes", "Statements", "Union"]


class CorpusEvidence:
    """Source texts and their BM25 index. Equal scores stand in the order of the sources."""

    def __init__(self, sources: Sequence[Source], name: str = "corpus", index: Index | None = None) -> None:
        """`index`: one of these very sources, where there is one. Raises CorpusError where none has a word."""
        self.name = name
        self._sources = sources
        self._index = index or Index.build(source.in_context for source in sources)
        if not len(self._index):
            raise CorpusError(f"evidence {name!r} has no text: add at least one sentence")

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
class Statements:
    """A corpus of which a claim may tell several sources one after the other: then it is a source itself."""

    corpus: CorpusEvidence

    def find(self, claim: str, k: int) -> list[Source]:
        """As Corpus does; a claim whose every sentence is a source comes first, with the place of the last."""
        found = self.corpus.find(claim, k)
        sentences = split(claim)
        if k < 1 or len(sentences) < 2:
            return found
        stated = [source for sentence in sentences for source in self.corpus.find(sentence, 1)]
        if [source.text for source in stated] != sentences:
            return found
        return [replace(stated[-1], text=claim), *found][:k]


@dataclass(frozen=True)
class Union:
    """Several evidences as one. BM25 scores of two indexes can't be compared, so results alternate by rank."""

    parts: Sequence[Evidence]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of the parts."""
        return tuple(note for part in self.parts for note in getattr(part, "notes", ()))

    def find(self, claim: str, k: int) -> list[Source]:
        """At most `k` sources: the best of each part, then the second of each, and so on; a text comes once."""
        (found,) = self.find_all([claim], k)
        return found

    def find_all(self, claims: Sequence[str], k: int) -> list[list[Source]]:
        """The same for each claim; a part that can looks up several at a time."""
        found = [find_all(part, claims, k) for part in self.parts]
        return [_alternated([lists[at] for lists in found])[:k] for at in range(len(claims))]


def _alternated(found: Sequence[Sequence[Source]]) -> list[Source]:
    """The first of each list, then the second of each, and so on; a text comes once."""
    texts: dict[str, Source] = {}
    for source in chain.from_iterable(zip_longest(*found)):
        if source is not None:
            texts.setdefault(source.text, source)
    return list(texts.values())
