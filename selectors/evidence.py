"""Evidence: texts that claims are checked against."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

from kcard import system
from kcard.errors import CorpusError, UsageError
from kcard.index import Index
from kcard.interfaces import Evidence
from kcard.text import passage_digest, split_sentences
from kcard.types import Source


class CorpusEvidence(Evidence):
    """Source texts and their BM25 index. Equal scores stand in the order of the sources."""

    def __init__(self, sources: Sequence[Source], name: str = "corpus", index: Index | None = None) -> None:
        """Index the sources, unless `index` is their index. Raises CorpusError if none has a word."""
        self.name = name
        self._sources = sources
        self._index = index or Index.build(source.in_context for source in sources)
        if not len(self._index):
            raise CorpusError(f"evidence {name!r} has no text: add at least one sentence")

    def __len__(self) -> int:
        return len(self._sources)

    def find(self, claim: str, k: int) -> list[Source]:
        """Return at most `k` sources that share a word with the claim, best first, with their BM25 scores."""
        rows = self._index.search(claim, k)
        return [replace(self._sources[row], score=score) for row, score in rows]


@dataclass(frozen=True)
class Hashes(Evidence):
    """Source texts of which only hashes are known: they match a claim, or a sentence of it, only word for word.

    `places`: of the texts, by `passage_digest`.
    """

    places: Mapping[str, Source]

    def find(self, claim: str, k: int) -> list[Source]:
        """Return at most `k` of the claim and its sentences, in that order, that are sources, with their places."""
        sources = []
        for part in dict.fromkeys([claim.strip(), *split_sentences(claim)]):
            place = self.places.get(passage_digest(part))
            if place is not None:
                sources.append(replace(place, text=part, score=1.0))
        return sources[: max(k, 0)]


@dataclass(frozen=True)
class Statements(Evidence):
    """A corpus in which a claim that strings several sources together counts as a source itself."""

    corpus: CorpusEvidence

    def find(self, claim: str, k: int) -> list[Source]:
        """See CorpusEvidence; a claim whose sentences are all sources comes first, with the place of the last."""
        sources = self.corpus.find(claim, k)
        sentences = split_sentences(claim)
        if k < 1 or len(sentences) < 2:
            return sources
        stated: list[Source] = []
        for sentence in sentences:
            stated += self.corpus.find(sentence, 1)
        if [source.text for source in stated] != sentences:
            return sources
        return [replace(stated[-1], text=claim), *sources][:k]


@dataclass(frozen=True)
class Union(Evidence):
    """Combined evidence. BM25 scores of two indexes can't be compared, so results alternate by rank."""

    parts: Sequence[Evidence]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the parts' notes for the user."""
        return tuple(chain.from_iterable(part.notes for part in self.parts))

    def find(self, claim: str, k: int) -> list[Source]:
        """Return at most `k` distinct sources: the best of each part, then the second of each, and so on."""
        (sources,) = self.find_all([claim], k)
        return sources

    def find_all(self, claims: Sequence[str], k: int) -> list[list[Source]]:
        """Return the same for each claim; parts that can, look up several at a time."""
        by_part = [part.find_all(claims, k) for part in self.parts]
        alternated = []
        for at in range(len(claims)):
            texts: dict[str, Source] = {}
            ranked = [lists[at] for lists in by_part]
            for source in chain.from_iterable(zip_longest(*ranked)):
                if source is not None:
                    texts.setdefault(source.text, source)
            alternated.append(list(texts.values())[:k])
        return alternated


# Evidence by name: a file or folder, or what is registered under `kcard.evidence`, built-ins as a user's own.
#
#     facts/            a local corpus; "corpus:facts/" is the same
#     wikipedia         the encyclopedia in English, "wikipedia:de" in German
#     NAME[:ARGUMENT]   the entry point NAME of the group, called with the argument ("" where there is none)
#
# A name wins over a file of that name, which is written "./wikipedia". A bare path is the entry point `corpus`.

GROUP = "kcard.evidence"
LOCAL = "corpus"


def open_evidence(spec: str) -> Evidence:
    """Open the evidence that `spec` names.

    Raises UsageError for an empty spec, CorpusError if there is neither such a name nor such a path, or if the corpus
    is empty or can't be read.
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
    evidence: Evidence = system.load(GROUP, name)(argument)
    return evidence


def names() -> list[str]:
    """Return the registered names, sorted."""
    return system.names(GROUP)
