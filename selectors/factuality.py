"""Factuality of passages by evidence, and top-k factuality sampling.

    s = (s_sum + s_fact) / 2
    s_sum   the checker's support of the pruned document by the original one; of two checkers, the one for summaries
    s_fact  the highest support of the document by one of the k texts that evidence search found for it

With the card's own corpus as evidence, s is faithfulness; with independent evidence, factuality. Evidence scores a
document; it never reaches the LLM.
"""

import functools
import hashlib
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kcard import cache
from kcard.errors import UsageError
from kcard.interfaces import Array, Checker, Evidence, Pair, Verdict, valid
from kcard.selectors.minilm_checker import SUPPORTED, coverage
from kcard.types import Passage, Source

# Validated checker scores: one verdict per pair, each a number in [0, 1].
#
# Checkers may be third-party; a score that is not a number must not decide what the LLM reads.


def support(checker: Checker, pairs: Sequence[Pair]) -> Array:
    """Score how far each pair's evidence supports its claim, shape (n,), in [0, 1]; without pairs, nothing is called.

    Raises UsageError, which names the checker, if the number of scores is wrong or one is not in [0, 1].
    """
    if not pairs:
        return np.zeros(0, dtype=np.float32)
    return valid(checker.support(pairs), len(pairs), (0.0, 1.0), _name(checker))


def verdicts(checker: Checker, pairs: Sequence[Pair]) -> list[Verdict]:
    """Return the same scores with the part of the evidence that decided."""
    if not pairs:
        return []
    judged = checker.judge(pairs)
    scores = valid([verdict.score for verdict in judged], len(pairs), (0.0, 1.0), _name(checker)).tolist()
    return [replace(verdict, score=score) for score, verdict in zip(scores, judged, strict=True)]


def _name(checker: Checker) -> str:
    return f"checker {type(checker).__name__}"


# No fact check, to ablate the factuality selector (Knowledge Card, figure 3).


class Unchecked(Checker):
    """A checker that supports every claim: with equal scores the draw is random."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        """Return ones, shape (n,)."""
        return np.ones(len(pairs), dtype=np.float32)


def draw(scores: Sequence[float | None], count: int, seed: int, k: int | None = None) -> list[int]:
    """Draw `count` items without replacement and return their indices in the order drawn (Knowledge Card, section 2.2).

    The k items with the highest scores take part (default: min(2 * count, all); of equal ones the earlier), each with
    p = exp(s) / sum of exp(s) over those not yet drawn. If at most `count` items have a score, all of these are taken,
    best first, and the remaining places go to items without one (None: no evidence was found), in their order. The
    result depends on `seed` alone: derive it from the question (kcard.types.derive_seed).
    """
    if count < 0 or (k is not None and k < count):
        raise UsageError(
            f"can't draw {count} documents from the best {k}: k must be at least the number drawn"
        )
    with_score = [i for i, score in enumerate(scores) if score is not None]
    order = sorted(with_score, key=lambda i: (-_value_of(scores[i]), i))
    if count == 0 or len(order) <= count:
        unknown = [i for i, score in enumerate(scores) if score is None]
        return [*order, *unknown][:count]
    best = order[: 2 * count if k is None else k]
    weights = np.exp([_value_of(scores[i]) for i in best])
    chosen = np.random.default_rng(seed).choice(
        len(best), size=count, replace=False, p=weights / weights.sum()
    )
    return [best[i] for i in chosen.tolist()]


def _value_of(score: float | None) -> float:
    assert score is not None
    return score


class TwoCheckers(Checker):
    """The paper's two checkers: `facts` is fact-check(claim | evidence), `summaries` is sum-fact(summary | document),
    where the summary is the claim."""

    def __init__(self, facts: Checker, summaries: Checker) -> None:
        self.facts, self.summaries, self.sha256 = facts, summaries, facts.sha256

    def support(self, pairs: Sequence[Pair]) -> Array:
        """Score pairs with `facts`."""
        return self.facts.support(pairs)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Judge pairs with `facts`."""
        return verdicts(self.facts, pairs)


class CachedChecker(Checker):
    """A bit-exact cache of `checker`'s verdicts (kcard.cache). Invalid scores are never cached.

    digest  of what determines the scores besides the pair: weights, settings, code
    """

    def __init__(self, checker: Checker, digest: str) -> None:
        self.checker, self.digest, self.sha256 = checker, digest, checker.sha256 or digest

    def support(self, pairs: Sequence[Pair]) -> Array:
        """Return the checker's scores; raises as the function `support`."""
        rows = cache.remembered(
            [cache.key("support", self.digest, pair.claim, pair.evidence) for pair in pairs],
            lambda places: [
                struct.pack("<f", score) for score in support(self.checker, [pairs[i] for i in places])
            ],
        )
        return np.array([struct.unpack("<f", row)[0] for row in rows], dtype=np.float32)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Return the checker's verdicts; the whole evidence is the window if it shows none."""
        rows = cache.remembered(
            [cache.key("verdict", self.digest, pair.claim, pair.evidence) for pair in pairs],
            lambda places: [_to_bytes(v) for v in verdicts(self.checker, [pairs[i] for i in places])],
        )
        return [_from_bytes(row) for row in rows]


def cached(checker: Checker) -> Checker:
    """Return the checker with a cache, if its `sha256` identifies weights and settings; else unchanged.

    Its code counts too: the source files in its folder.
    """
    if isinstance(checker, TwoCheckers):
        return TwoCheckers(cached(checker.facts), cached(checker.summaries))
    if isinstance(checker, CachedChecker):
        return checker
    digest = checker.sha256
    code = _code_digest(type(checker))
    if digest is None or code is None:
        return checker
    return CachedChecker(checker, hashlib.sha256(f"{digest}\n{code}".encode()).hexdigest())


@functools.cache
def _code_digest(kind: type) -> str | None:
    """Return the digest of the source files in the folder of a class; None if the class is in no file."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:
        return None
    return cache.source_digest(*sorted(Path(file).parent.glob("*.py")))


def _to_bytes(verdict: Verdict) -> bytes:
    refutation = math.nan if verdict.refutation is None else verdict.refutation
    return struct.pack("<ff", verdict.score, refutation) + verdict.window.encode("utf-8", "surrogatepass")


def _from_bytes(row: bytes) -> Verdict:
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
    """Return the passages with their `faithfulness` and `factuality` in [0, 1] and the `evidence` that decided.

    own           each card's own corpus, which gives faithfulness
    independent   other evidence, which gives factuality
    floor         the factuality of an unsupported document is unknown if the evidence has less than this share of its
                  words in one place: then it is about something else
    with_summary  False leaves s_sum out: s = s_fact

    Without evidence, or if nothing is found in it, a score is None: unknown. A document that was not pruned, or that
    pruning left unchanged, is its own summary: s_sum = 1. A document that is one of the texts word for word has support
    1, and no other text is read; so has one that the card retrieved from its corpus. All distinct pairs go to the
    checker in one call. Raises UsageError if the checker returns invalid scores.
    """
    # Search the sources of each passage.
    faithful = [
        _stated(p, sources) for p, sources in zip(passages, _own_sources(passages, own, k), strict=True)
    ]
    factual = [
        _stated(p, sources) for p, sources in zip(passages, _others(passages, independent, k), strict=True)
    ]
    # Score all pairs of passage and source, and of summary and passage.
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
    # Take the best source of each passage, and average with the score of its summary.
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
    """Return the highest support by one of the sources, and that source."""
    if not sources:
        return None, None
    scores = [1.0 if s.text == passage.text else scored[Pair(passage.text, s.in_context)] for s in sources]
    best = max(range(len(scores)), key=lambda i: scores[i])
    return scores[best], sources[best]


def _scored(checker: Checker, groups: Sequence[Sequence[Pair]]) -> dict[Pair, float]:
    pairs = list(dict.fromkeys(pair for group in groups for pair in group))
    return dict(zip(pairs, support(checker, pairs).tolist(), strict=True))


def _stated(passage: Passage, sources: list[Source]) -> list[Source]:
    """Return the source that is the document itself, alone, if there is one; else all sources."""
    own = [source for source in sources if source.text == passage.text]
    return own[:1] or sources


def _own_sources(passages: Sequence[Passage], own: Mapping[str, Evidence], k: int) -> list[list[Source]]:
    """Search each passage's card for sources; a passage that was retrieved from it is its own source."""
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
    by_text = dict(zip(texts, evidence.find_all(texts, k), strict=True))
    return [by_text[p.text] for p in passages]
