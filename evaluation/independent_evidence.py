"""Independent evidence: texts from outside a card's corpus, and how much of the corpus they repeat."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.errors import UsageError
from kcard.interfaces import Evidence
from kcard.text import words
from kcard.types import Source

RUN_WORDS = 8
MAX_COMPARED_PASSAGES = 2000  # of a corpus by runs of words, whose hashes must fit into memory


class CorpusMatcher:
    """Recognises the passages of a card's corpus in other texts, by their hashes and by runs of eight words.

    digests   of its passages or statements (kcard.text.passage_digest)
    passages  their text, if available; of more than MAX_COMPARED_PASSAGES, that many evenly spread ones are
              compared by runs

    `repeats` records which passages it has seen, so that `share` is the share of the corpus that the texts so far
    contain.
    """

    def __init__(self, digests: Iterable[str], passages: Sequence[Source] = ()) -> None:
        self._digests = frozenset(digests)
        step = max(1, -(-len(passages) // MAX_COMPARED_PASSAGES))
        self._passages = [frozenset(_runs(source.text)) for source in passages[::step]]
        self._runs = frozenset[int]().union(*self._passages)
        self._seen = set[int]()
        self._same = 0

    def repeats(self, text: Source) -> bool:
        """Return whether the text is a passage of the corpus, or more than half of its runs occur in the corpus."""
        from kcard.training.corpus import is_known

        runs = _runs(text.text)
        shared = runs & self._runs
        self._seen |= shared
        same = is_known(text, self._digests)
        self._same += same
        return same or len(shared) * 2 > len(runs)

    @property
    def share(self) -> float:
        """Share of the corpus' passages with more than half of their runs in the texts so far, in [0, 1].

        Without the passages' text, the share of their hashes.
        """
        if self._passages:
            repeated = 0
            for runs in self._passages:
                repeated += 2 * len(runs & self._seen) > len(runs)
            return repeated / len(self._passages)
        if self._digests:
            return min(1.0, self._same / len(self._digests))
        return 0.0


@dataclass(frozen=True)
class IndependentEvidence:
    """Evidence that does not consist of the card's own corpus, with the overlap of the two.

    shared   number of its texts that repeat the card's corpus; 0 for remote evidence, whose texts can't be listed
    overlap  the larger of two shares: of its texts that repeat the corpus, and of the corpus that they repeat
    own      recognises the card's corpus in a text
    notes    warnings about the evidence
    """

    name: str
    sha256: str
    evidence: Evidence
    shared: int
    overlap: float
    own: CorpusMatcher
    notes: tuple[str, ...] = ()


def read_independent(
    specs: Sequence[Path | str], digests: Iterable[str], passages: Sequence[Source] = ()
) -> IndependentEvidence | None:
    """Open the evidence that the specs name (files, folders, registered evidence) as one; None for no specs.

    digests   of the card's passages or statements (kcard.text.passage_digest)
    passages  their text, if available

    Raises CorpusError and UsageError as open_evidence does, and UsageError if every text is a passage of the card's own
    corpus, since that would measure faithfulness. Remote evidence is compared only as its texts are retrieved.
    """
    from kcard.selectors.evidence import Union, open_evidence
    from kcard.training.corpus import is_known

    if not specs:
        return None
    parts = [open_evidence(str(spec)) for spec in specs]
    name = ", ".join(part.name for part in parts)
    notes: list[str] = []
    texts: dict[str, Source] = {}
    has_remote = False
    for part in parts:
        notes += part.notes
        if isinstance(part, Iterable):
            for source in part:
                texts[source.text] = source
        else:
            has_remote = True
    # Refuse the card's own corpus.
    own_digests = frozenset(digests)
    if texts and not has_remote and all(is_known(source, own_digests) for source in texts.values()):
        raise UsageError(
            f"evidence {name}: every text in it is a passage of the card's own corpus, which would measure "
            "faithfulness: give text from another source"
        )
    # The overlap with it.
    own = CorpusMatcher(own_digests, passages)
    shared = sum(own.repeats(source) for source in texts.values())
    overlap = 0.0
    if texts:
        overlap = max(own.share, shared / len(texts))
    if len(parts) == 1:
        return IndependentEvidence(name, parts[0].digest, parts[0], shared, overlap, own, tuple(notes))
    # Several parts are identified by the digest of their digests, one per line.
    sha256 = hashlib.sha256("\n".join(part.digest for part in parts).encode()).hexdigest()
    return IndependentEvidence(name, sha256, Union(parts), shared, overlap, own, tuple(notes))


def _runs(text: str) -> set[int]:
    """Return hashes of every run of eight words; a shorter text is one run."""
    tokens = words(text)
    last = max(0, len(tokens) - RUN_WORDS)
    return {hash(tuple(tokens[at : at + RUN_WORDS])) for at in range(last + 1)}
