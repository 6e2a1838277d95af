"""A checker that remembers what it said of a pair, under the digest of the checker (kcard.cache)."""

import functools
import hashlib
import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kcard import cache
from kcard.protocols import Array, Checker, Pair, Verdict
from kcard.selectors.models.two_checkers import TwoCheckers
from kcard.selectors.verdicts import support, verdicts

__all__ = ["CachedChecker", "cached"]


@dataclass(frozen=True)
class CachedChecker:
    """Says of a pair what `checker` says, to the bit, and asks it once. Invalid scores are never kept.

    digest  what decides the scores but the pair: weights, settings, code
    """

    checker: Checker
    digest: str

    @property
    def sha256(self) -> str:
        """The checker's own name for its scores."""
        return str(getattr(self.checker, "sha256", self.digest))

    def support(self, pairs: Sequence[Pair]) -> Array:
        """As the checker's; see `verdicts.support` for what is refused."""
        rows = cache.remembered(
            [cache.key("support", self.digest, pair.claim, pair.evidence) for pair in pairs],
            lambda places: [
                struct.pack("<f", score) for score in support(self.checker, [pairs[i] for i in places])
            ],
        )
        return np.array([struct.unpack("<f", row)[0] for row in rows], dtype=np.float32)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """As the checker's, with the window that decided; the whole evidence where it shows none."""
        rows = cache.remembered(
            [cache.key("verdict", self.digest, pair.claim, pair.evidence) for pair in pairs],
            lambda places: [_packed(found) for found in verdicts(self.checker, [pairs[i] for i in places])],
        )
        return [_unpacked(row) for row in rows]


def cached(checker: Checker) -> Checker:
    """The checker, remembering, where it names its weights and settings by a `sha256`; else as it is.

    Its code counts too: the source files beside its own.
    """
    if isinstance(checker, TwoCheckers):
        return TwoCheckers(cached(checker.facts), cached(checker.summaries))
    if isinstance(checker, CachedChecker):
        return checker
    digest = getattr(checker, "sha256", None)
    code = _code(type(checker))
    if not isinstance(digest, str) or code is None:
        return checker
    return CachedChecker(checker, hashlib.sha256(f"{digest}\n{code}".encode()).hexdigest())


@functools.cache
def _code(kind: type) -> str | None:
    """Digest of the source files in the folder of a class; None where it stands in no file."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:
        return None
    return cache.source_digest(*sorted(Path(file).parent.glob("*.py")))


def _packed(verdict: Verdict) -> bytes:
    refutation = math.nan if verdict.refutation is None else verdict.refutation
    return struct.pack("<ff", verdict.score, refutation) + verdict.window.encode("utf-8", "surrogatepass")


def _unpacked(row: bytes) -> Verdict:
    score, refutation = struct.unpack_from("<ff", row)
    window = row[8:].decode("utf-8", "surrogatepass")
    return Verdict(score, window, None if math.isnan(refutation) else refutation)
