"""Independent evidence: texts from outside a card's corpus, and how much of it they repeat all the same."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.errors import UsageError
from kcard.interfaces import Evidence
from kcard.text import words
from kcard.types import Source

RUN_WORDS = 8
MAX_COMPARED_PASSAGES = 2000  # of a corpus; the hashes of their runs are kept in memory


class CorpusMatcher:
    """Recognises the passages of a card's corpus in other texts, by their hashes and by runs of eight words.

    digests   of the card's passages or statements (kcard.text.passage_digest)
    passages  their text, if available; at most MAX_COMPARED_PASSAGES, evenly spread, are compared by runs

    `repeats` records what it has seen for `share`.
    """

    def __init__(self, digests: Iterable[str], passages: Sequence[Source] = ()) -> None:
        self._digests = frozenset(digests)
        step = max(1, math.ceil(len(passages) / MAX_COMPARED_PASSAGES))
        self._passage_runs = [_runs(source.text) for source in passages[::step]]
        self._corpus_runs = set[int]().union(*self._passage_runs)
        self._seen_runs = set[int]()
        self._known_texts = 0

    def repeats(self, text: Source) -> bool:
        """Return whether the text is a passage of the corpus, or more than half of its runs occur in the corpus."""
        from kcard.training.corpus import is_known

        runs = _runs(text.text)
        shared = runs & self._corpus_runs
        self._seen_runs |= shared
        if is_known(text, self._digests):
            self._known_texts += 1
            return True
        return len(shared) > len(runs) / 2

    @property
    def share(self) -> float:
        """Share of the corpus' passages with more than half of their runs in the texts so far, in [0, 1].

        Without the passages' text, the share of their hashes.
        """
        if self._passage_runs:
            repeated = 0
            for runs in self._passage_runs:
                if len(runs & self._seen_runs) > len(runs) / 2:
                    repeated += 1
            return repeated / len(self._passage_runs)
        if self._digests:
            return min(1.0, self._known_texts / len(self._digests))
        return 0.0


@dataclass(frozen=True)
class IndependentEvidence:
    """Evidence other than the card's own corpus, with the overlap of the two.

    shared   number of texts that repeat the card's corpus; 0 for remote evidence, whose texts can't be listed
    overlap  the larger of two shares, in [0, 1]: of the texts, those that repeat the corpus; of the corpus, what the
             texts repeat
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
    """Open the evidence that the specs name (files, folders, registered evidence) as one; None without specs.

    digests   of the card's passages or statements (kcard.text.passage_digest)
    passages  their text, if available

    Raises CorpusError and UsageError as open_evidence does, and UsageError if every text is a passage of the card's own
    corpus, since that would measure faithfulness. Remote evidence is compared later, as its texts are retrieved.
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
        if isinstance(part, Iterable):  # local evidence
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
    # Measure the overlap with it.
    own = CorpusMatcher(own_digests, passages)
    shared = sum(own.repeats(source) for source in texts.values())
    overlap = 0.0
    if texts:
        overlap = max(own.share, shared / len(texts))
    evidence, sha256 = parts[0], parts[0].digest
    if len(parts) > 1:
        digest_lines = "\n".join(part.digest for part in parts)
        evidence, sha256 = Union(parts), hashlib.sha256(digest_lines.encode()).hexdigest()
    return IndependentEvidence(name, sha256, evidence, shared, overlap, own, tuple(notes))


def _runs(text: str) -> set[int]:
    """Return hashes of every run of eight words; a shorter text is one run."""
    tokens = words(text)
    last_start = max(0, len(tokens) - RUN_WORDS)
    return {hash(tuple(tokens[start : start + RUN_WORDS])) for start in range(last_start + 1)}
