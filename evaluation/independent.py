"""Independent evidence: texts from outside a card's corpus, by name and content, and how far they repeat it."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.answer import Source
from kcard.errors import UsageError
from kcard.protocols import Evidence, NamedEvidence
from kcard.words import words

__all__ = ["Independent", "OwnText", "read_independent"]

RUN = 8  # words
SAMPLE = 2000  # passages of a corpus whose words are compared: a run is a number in memory


class OwnText:
    """The corpus of a card, recognised in other texts: by the hashes of its passages, and by runs of eight words.

    digests   of its passages or statements (kcard.words.passage_digest)
    passages  their text, as far as it is at hand; of more than 2000 as many that are evenly spread

    `repeats` remembers what it saw, so that `share` says how much of the corpus stood in the texts so far.
    """

    def __init__(self, digests: Iterable[str], passages: Sequence[Source] = ()) -> None:
        self._digests = frozenset(digests)
        step = max(1, -(-len(passages) // SAMPLE))
        self._passages = [frozenset(_runs(source.text)) for source in passages[::step]]
        self._runs = frozenset[int]().union(*self._passages)
        self._seen = set[int]()
        self._same = 0

    def repeats(self, text: Source) -> bool:
        """Whether it is a passage of the corpus, or shares half of its runs with the corpus."""
        from kcard.training.corpus import is_known

        runs = _runs(text.text)
        shared = runs & self._runs
        self._seen |= shared
        same = is_known(text, self._digests)
        self._same += same
        return same or len(shared) * 2 > len(runs)

    @property
    def share(self) -> float:
        """The share of the corpus' passages that stood in the texts so far, at least half of their runs; in [0, 1]."""
        if not self._passages:
            return min(1.0, self._same / len(self._digests)) if self._digests else 0.0
        there = sum(2 * len(runs & self._seen) > len(runs) for runs in self._passages)
        return there / len(self._passages)


@dataclass(frozen=True)
class Independent:
    """Evidence that a card was not made of, as far as can be seen.

    shared   how many of its texts repeat the card's corpus; 0 where they lie elsewhere
    overlap  the share of its texts that do, or of the corpus that they repeat, whichever is more; in [0, 1]
    own      recognises the card's corpus in a text
    notes    what the user should know of it
    """

    name: str
    sha256: str
    evidence: Evidence
    shared: int
    overlap: float
    own: OwnText
    notes: tuple[str, ...] = ()


def read_independent(
    specs: Sequence[Path | str], digests: Iterable[str], passages: Sequence[Source] = ()
) -> Independent | None:
    """All that the specs name (files, folders, registered evidence) as one evidence; None of none.

    digests   those of the card's corpus (kcard.words.passage_digest), of its passages or of its statements
    passages  its text, where that is at hand

    Raises CorpusError and UsageError as open_evidence does, and UsageError where every text is the card's own: that
    would be faithfulness. Texts that don't lie here can't be compared before they are found.
    """
    from kcard.selectors.evidence.registry import open_evidence
    from kcard.selectors.evidence.sources import Union
    from kcard.training.corpus import is_known

    if not specs:
        return None
    parts = [open_evidence(str(spec)) for spec in specs]
    name = ", ".join(part.name for part in parts)
    local = [part for part in parts if isinstance(part, Iterable)]
    texts = {source.text: source for part in local for source in part}
    known = frozenset(digests)
    if texts and len(local) == len(parts) and all(is_known(source, known) for source in texts.values()):
        raise UsageError(
            f"evidence {name}: every text in it is a passage of the card's own corpus, which faithfulness is "
            "measured on: give text from elsewhere"
        )
    own = OwnText(known, passages)
    shared = sum(own.repeats(source) for source in texts.values())
    overlap = max(own.share, shared / len(texts)) if texts else 0.0
    notes = tuple(note for part in parts for note in getattr(part, "notes", ()))
    whole = parts[0] if len(parts) == 1 else Union(parts)
    return Independent(name, _digest(parts), whole, shared, overlap, own, notes)


def _runs(text: str) -> set[int]:
    """Hashes of every run of eight words; a shorter text is one run."""
    found = words(text)
    return {hash(tuple(found[at : at + RUN])) for at in range(max(1, len(found) - RUN + 1))}


def _digest(parts: Sequence[NamedEvidence]) -> str:
    """Of one evidence its own, of several that of theirs, one a line."""
    digests = [part.digest for part in parts]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
