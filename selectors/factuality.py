"""Factuality of passages against evidence, and top-k factuality sampling.

    s = (s_sum + s_fact) / 2
    s_sum   the checker's support of the pruned document by the original one; of two checkers, the one for summaries
    s_fact  the highest support of the document by one of the k texts that evidence search found for it

Measured against the card's own corpus s is faithfulness, against independent evidence factuality. Evidence scores a
document; it never reaches the LLM.
"""

import functools
import hashlib
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kcard import cache
from kcard.errors import UsageError
from kcard.interfaces import Array, Checker, Evidence, Judging, Pair, Verdict, find_all, valid
from kcard.offline.checker import SUPPORTED, coverage
from kcard.types import Passage, Source

__all__ = ["CachedChecker", "TwoCheckers", "Unchecked", "cached", "draw", "judge", "support", "verdicts"]


# What a checker says of pairs, held to its protocol: one verdict a pair, each score a number in [0, 1].
#
# Checkers are anyone's to add; a score that is not a number must not decide what the LLM reads.


def support(checker: Checker, pairs: Sequence[Pair]) -> Array:
    """How far the evidence of each pair supports its claim, shape (n,), in [0, 1]; no pair, no call.

    Raises UsageError, which names the checker, where it gives another number of scores, or one that is not in [0, 1].
    """
    if not pairs:
        return np.zeros(0, dtype=np.float32)
    return valid(checker.support(pairs), len(pairs), (0.0, 1.0), _name(checker))


def verdicts(checker: Checker, pairs: Sequence[Pair]) -> list[Verdict]:
    """The same scores with the part of the evidence that decided: all of it where the checker does not show one."""
    if not isinstance(checker, Judging):
        scores = support(checker, pairs).tolist()
        return [Verdict(score, pair.evidence) for score, pair in zip(scores, pairs, strict=True)]
    if not pairs:
        return []
    judged = checker.judge(pairs)
    scores = valid([verdict.score for verdict in judged], len(pairs), (0.0, 1.0), _name(checker)).tolist()
    return [replace(verdict, score=score) for score, verdict in zip(scores, judged, strict=True)]


def _name(checker: Checker) -> str:
    return f"checker {type(checker).__name__}"


# No fact check, to measure what the factuality selector is good for (Knowledge Card, figure 3).


class Unchecked:
    """Takes every claim for supported: of equal scores the draw is a choice by chance."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        """Shape (n,), all 1."""
        return np.ones(len(pairs), dtype=np.float32)


# Top-k factuality sampling (Knowledge Card, section 2.2): which documents reach the LLM.


def draw(scores: Sequence[float | None], count: int, seed: int, k: int | None = None) -> list[int]:
    """Draw `count` of the items without replacement and return their indices in the order drawn.

    The k items with the highest scores take part (default: min(2 * count, all); of equal ones the earlier),
    each with p = exp(s) / sum of exp(s) over those not yet drawn. With `count` items or fewer all stay.
    Where `count` reaches the number of items with a score, all of these stay, best first, and the places
    left over go to items without one (None: no evidence was found), in the order given. `seed` decides
    everything: derive it from what is being asked (kcard.types.derive_seed).
    """
    if count < 0 or (k is not None and k < count):
        raise UsageError(
            f"can't draw {count} documents from the best {k}: k must be at least the number drawn"
        )
    with_score = [i for i, score in enumerate(scores) if score is not None]
    order = sorted(with_score, key=lambda i: (-_known(scores[i]), i))
    if count == 0 or len(order) <= count:
        unknown = [i for i, score in enumerate(scores) if score is None]
        return [*order, *unknown][:count]
    best = order[: 2 * count if k is None else k]
    weights = np.exp([_known(scores[i]) for i in best])
    chosen = np.random.default_rng(seed).choice(
        len(best), size=count, replace=False, p=weights / weights.sum()
    )
    return [best[i] for i in chosen.tolist()]


def _known(score: float | None) -> float:
    assert score is not None
    return score


# Two checkers as one: one for facts, one for whether a summary keeps to its document, as in the paper.


@dataclass(frozen=True)
class TwoCheckers:
    """`facts` is fact-check(claim | evidence), `summaries` sum-fact(summary | document); a summary is the claim."""

    facts: Checker
    summaries: Checker

    @property
    def sha256(self) -> str | None:
        """What names the scores of `support` and `judge`, where the checker of facts has such a name."""
        return getattr(self.facts, "sha256", None)

    def support(self, pairs: Sequence[Pair]) -> Array:
        """Those of `facts`."""
        return self.facts.support(pairs)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Those of `facts`."""
        return verdicts(self.facts, pairs)


# A checker that remembers what it said of a pair, under the digest of the checker (kcard.cache).


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


def judge(
    passages: Sequence[Passage],
    own: Mapping[str, Evidence],
    checker: Checker,
    k: int = 3,
    with_summary: bool = True,
    independent: Evidence | None = None,
    floor: float = 0.0,
) -> list[Passage]:
    """The passages with their `faithfulness` and `factuality` in [0, 1] and the `evidence` that decided.

    `own`: the card's own corpus, looked up by the passage's card; it gives faithfulness. `independent`: other evidence,
    which gives factuality. Where there is none, or nothing is found in it, the score is None: unknown. So is the
    factuality of a document that is not supported, if the texts found have less than `floor` of its words in one place
    (windows.py): they speak of something else.
    `with_summary=False` leaves s_sum out: s = s_fact. A document that was not pruned, or that pruning left as it was,
    is its own summary: s_sum = 1. A document that is one of the texts word for word is supported by it, 1, and no other
    is read; so is one that the card looked up in its corpus. Every pair of every passage goes to the checker in one
    call, each once. Raises UsageError where the checker gives what are no scores (verdicts.py).
    """
    faithful = [_stated(p, found) for p, found in zip(passages, _own(passages, own, k), strict=True)]
    factual = [
        _stated(p, found) for p, found in zip(passages, _others(passages, independent, k), strict=True)
    ]
    pairs = [
        [Pair(p.text, s.in_context) for s in (*sources, *others) if s.text != p.text]
        for p, sources, others in zip(passages, faithful, factual, strict=True)
    ]
    sums = [
        [Pair(p.pruned, p.text)]
        if with_summary and (sources or others) and p.pruned not in (None, p.text)
        else []
        for p, sources, others in zip(passages, faithful, factual, strict=True)
    ]
    if isinstance(checker, TwoCheckers):
        scored, summed = _scored(checker.facts, pairs), _scored(checker.summaries, sums)
    else:
        scored = summed = _scored(checker, [*pairs, *sums])
    judged = []
    for passage, sources, others, summary in zip(passages, faithful, factual, sums, strict=True):
        summary_support = summed[summary[0]] if summary else 1.0
        faithfulness, near = _best(passage, sources, scored)
        factuality, other = _best(passage, others, scored)
        if factuality is not None and factuality < SUPPORTED and floor:
            texts = [source.in_context for source in others]
            if coverage(passage.text, texts) < floor:
                factuality, other = None, None
        if with_summary:
            faithfulness, factuality = (
                None if s is None else (s + summary_support) / 2 for s in (faithfulness, factuality)
            )
        judged.append(
            replace(passage, faithfulness=faithfulness, factuality=factuality, evidence=other or near)
        )
    return judged


def _best(
    passage: Passage, sources: Sequence[Source], scored: Mapping[Pair, float]
) -> tuple[float | None, Source | None]:
    """The highest support by one of the sources, and that source."""
    if not sources:
        return None, None
    scores = [1.0 if s.text == passage.text else scored[Pair(passage.text, s.in_context)] for s in sources]
    best = max(range(len(scores)), key=lambda i: scores[i])
    return scores[best], sources[best]


def _scored(checker: Checker, groups: Sequence[Sequence[Pair]]) -> dict[Pair, float]:
    pairs = list(dict.fromkeys(pair for group in groups for pair in group))
    return dict(zip(pairs, support(checker, pairs).tolist(), strict=True))


def _stated(passage: Passage, sources: list[Source]) -> list[Source]:
    """The source that is the document itself, alone, where there is one."""
    own = [source for source in sources if source.text == passage.text]
    return own[:1] or sources


def _own(passages: Sequence[Passage], own: Mapping[str, Evidence], k: int) -> list[list[Source]]:
    """What each passage's card holds that may support it; what was looked up in it supports itself."""
    by_text: dict[tuple[str, str], list[Source]] = {}
    sources = []
    for passage in passages:
        if passage.source is not None and passage.card in own:
            sources.append([passage.source])
            continue
        key = (passage.card, passage.text)
        if key not in by_text:
            evidence = own.get(passage.card)
            by_text[key] = evidence.find(passage.text, k) if evidence else []
        sources.append(by_text[key])
    return sources


def _others(passages: Sequence[Passage], evidence: Evidence | None, k: int) -> list[list[Source]]:
    if evidence is None:
        return [[] for _ in passages]
    texts = list(dict.fromkeys(p.text for p in passages))
    by_text = dict(zip(texts, find_all(evidence, texts, k), strict=True))
    return [by_text[p.text] for p in passages]
