"""Independent evidence: texts from outside a card's corpus, by name and content."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.errors import UsageError
from kcard.protocols import Evidence, NamedEvidence

__all__ = ["Independent", "read_independent"]


@dataclass(frozen=True)
class Independent:
    """`shared`: how many of its texts are passages of the card's corpus too, word for word; 0 where they lie elsewhere.

    `notes`: what the user should know of it.
    """

    name: str
    sha256: str
    evidence: Evidence
    shared: int
    notes: tuple[str, ...] = ()


def read_independent(specs: Sequence[Path | str], own: Iterable[str]) -> Independent | None:
    """All that the specs name (files, folders, registered evidence) as one evidence; None of none.

    own  the digests of the card's corpus (kcard.words.passage_digest), of its passages or of its statements

    Raises CorpusError and UsageError as open_evidence does, and UsageError where every text is the card's own: that
    would be faithfulness. Texts that don't lie here can't be compared with the card's own.
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
    known = frozenset(own)
    shared = sum(is_known(source, known) for source in texts.values())
    if texts and shared == len(texts) and len(local) == len(parts):
        raise UsageError(
            f"evidence {name}: every text in it is a passage of the card's own corpus, which faithfulness is "
            "measured on: give text from elsewhere"
        )
    notes = tuple(note for part in parts for note in getattr(part, "notes", ()))
    return Independent(name, _digest(parts), parts[0] if len(parts) == 1 else Union(parts), shared, notes)


def _digest(parts: Sequence[NamedEvidence]) -> str:
    """Of one evidence its own, of several that of theirs, one a line."""
    digests = [part.digest for part in parts]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
