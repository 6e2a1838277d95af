"""Evidence: where a checker looks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np

from kcard import system
from kcard.cache import remembered_embeddings
from kcard.errors import CorpusError, UsageError
from kcard.index import Index
from kcard.interfaces import Array, Evidence, NamedEvidence, find_all
from kcard.text import passage_digest, split_sentences
from kcard.types import Source

__all__ = [
    "GROUP",
    "CorpusEvidence",
    "DenseCorpus",
    "Hashes",
    "Statements",
    "Union",
    "names",
    "open_evidence",
]


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
        rows = self._index.search(claim, k)
        return [replace(self._sources[row], score=score) for row, score in rows]


@dataclass(frozen=True)
class Hashes:
    """Source texts of which only the hashes are known: a claim, or a sentence of it, is one word for word.

    `places`: by `passage_digest`, where the text stands. All else is unknown.
    """

    places: Mapping[str, Source]

    def find(self, claim: str, k: int) -> list[Source]:
        """At most `k` of the claim and its sentences, in that order, that are sources, with their places."""
        parts = dict.fromkeys([claim.strip(), *split_sentences(claim)])
        places = [(part, self.places.get(passage_digest(part))) for part in parts]
        return [replace(place, text=part, score=1.0) for part, place in places if place is not None][
            : max(k, 0)
        ]


@dataclass(frozen=True)
class Statements:
    """A corpus of which a claim may tell several sources one after the other: then it is a source itself."""

    corpus: CorpusEvidence

    def find(self, claim: str, k: int) -> list[Source]:
        """As Corpus does; a claim whose every sentence is a source comes first, with the place of the last."""
        sources = self.corpus.find(claim, k)
        sentences = split_sentences(claim)
        if k < 1 or len(sentences) < 2:
            return sources
        stated = [source for sentence in sentences for source in self.corpus.find(sentence, 1)]
        if [source.text for source in stated] != sentences:
            return sources
        return [replace(stated[-1], text=claim), *sources][:k]


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
        (sources,) = self.find_all([claim], k)
        return sources

    def find_all(self, claims: Sequence[str], k: int) -> list[list[Source]]:
        """The same for each claim; a part that can looks up several at a time."""
        by_part = [find_all(part, claims, k) for part in self.parts]
        return [_alternated([lists[at] for lists in by_part])[:k] for at in range(len(claims))]


def _alternated(lists: Sequence[Sequence[Source]]) -> list[Source]:
    """The first of each list, then the second of each, and so on; a text comes once."""
    texts: dict[str, Source] = {}
    for source in chain.from_iterable(zip_longest(*lists)):
        if source is not None:
            texts.setdefault(source.text, source)
    return list(texts.values())


# Evidence by name: a file or folder, or what is registered under `kcard.evidence`, built-ins as a user's own.
#
#     facts/            a local corpus; "corpus:facts/" is the same
#     wikipedia         the encyclopedia in English, "wikipedia:de" in German
#     NAME[:ARGUMENT]   the entry point NAME of the group, called with the argument ("" where there is none)
#
# A name wins over a file of that name, which is written "./wikipedia". A bare path is the entry point `corpus`.

GROUP = "kcard.evidence"
LOCAL = "corpus"


def open_evidence(spec: str) -> NamedEvidence:
    """The evidence that `spec` names, ready to be searched.

    Raises UsageError for an empty spec, CorpusError where there is neither such a name nor such a path, or the
    corpus is empty or can't be read; and what an evidence of a user's own raises.
    """
    name, _, argument = spec.partition(":")
    if not spec.strip():
        raise UsageError("evidence is empty: give a file, a folder or one of " + ", ".join(names()))
    if name not in names():
        path = Path(spec).expanduser()
        if path.name.partition(":")[0] in names() and not path.exists():
            raise CorpusError(
                f"evidence {spec} does not exist; a project file can't choose {path.name}: give it as --evidence, "
                "or set it in your own config"
            )
        if not path.exists():
            raise CorpusError(
                f"evidence {spec} does not exist: name a file, a folder or one of {', '.join(names())}"
            )
        name, argument = LOCAL, spec
    evidence: NamedEvidence = system.load(GROUP, name)(argument)
    return evidence


def names() -> list[str]:
    """The registered names, sorted."""
    return system.names(GROUP)


# A dense retriever: passages and questions as vectors of one encoder, the largest dot products first.
#
# With Contriever's vectors (the mean over token states, not normalised) this is the retriever of Adaptive Retrieval
# (section 5); with vectors of unit length the dot product is the cosine. Every passage is compared, so nothing is
# approximate, and all vectors are in memory: four bytes a number, 3 GB for a million passages of 768.

Embed = Callable[[Sequence[str]], Array]


class DenseCorpus:
    """Source texts, found by the vectors that `embed` gives them; equal scores stand in the order of the sources.

    embed   texts to vectors, shape (n, d)
    model   the digest of all that decides a vector but the text; a passage is embedded once for each (kcard.cache)

    Raises CorpusError where there is no text.
    """

    def __init__(self, sources: Sequence[Source], embed: Embed, model: str, name: str = "corpus") -> None:
        if not sources:
            raise CorpusError(f"evidence {name!r} has no text: add at least one sentence")
        self.name = name
        self._sources, self._embed, self._model = sources, embed, model
        self._vectors = remembered_embeddings(model, [source.in_context for source in sources], embed)

    def __len__(self) -> int:
        return len(self._sources)

    def find(self, claim: str, k: int) -> list[Source]:
        """The `k` sources with the largest dot product, or all if there are fewer; their scores are any number."""
        scores = self._vectors @ remembered_embeddings(self._model, [claim], self._embed)[0]
        best = np.argsort(-scores, kind="stable")[: max(k, 0)]
        return [replace(self._sources[row], score=float(scores[row])) for row in best]
