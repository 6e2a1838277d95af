"""Evidence for several claims at once: concurrently where looking up means waiting, as for an encyclopedia online."""

from collections.abc import Sequence

from kcard.answer import Source
from kcard.protocols import ConcurrentEvidence, Evidence

__all__ = ["find_all"]


def find_all(evidence: Evidence, claims: Sequence[str], k: int) -> list[list[Source]]:
    """What `find` gives for each claim, in order. Raises what it raises."""
    if isinstance(evidence, ConcurrentEvidence):
        return evidence.find_all(claims, k)
    return [evidence.find(claim, k) for claim in claims]
