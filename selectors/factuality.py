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
from kcard.selectors.minilm_checker import MIN_SUPPORT, coverage
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
    known, unknown = [], []
    for place, score in enumerate(scores):
        if score is None:
            unknown.append(place)
        else:
            known.append((-score, place))
    known.sort()
    if count == 0 or len(known) <= count:
        return [*(place for _, place in known), *unknown][:count]
    if k is None:
        k = 2 * count
    best = known[:k]
    weights = np.exp([-negative for negative, _ in best])
    chosen = np.random.default_rng(seed).choice(
        len(best), size=count, replace=False, p=weights / weights.sum()
    )
    return [best[i][1] for i in chosen.tolist()]


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

        def compute(places: Sequence[int]) -> list[bytes]:
            scores = support(self.checker, [pairs[i] for i in places])
            return [struct.pack("<f", score) for score in scores]

        rows = cache.remembered(self._keys("support", pairs), compute)
        return np.frombuffer(b"".join(rows), dtype="<f4").astype(np.float32)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Return the checker's verdicts; the whole evidence is the window if it shows none."""

        def compute(places: Sequence[int]) -> list[bytes]:
            judged = verdicts(self.checker, [pairs[i] for i in places])
            return [_to_bytes(verdict) for verdict in judged]

        return [_from_bytes(row) for row in cache.remembered(self._keys("verdict", pairs), compute)]

    def _keys(self, kind: str, pairs: Sequence[Pair]) -> list[bytes]:
        return [cache.key(kind, self.digest, pair.claim, pair.evidence) for pair in pairs]


def cached(checker: Checker) -> Checker:
    """Return the checker with a cache, if its `sha256` identifies weights and settings; else unchanged.

    Its code counts too: the source files in its folder.
    """
    if isinstance(checker, TwoCheckers):
        return TwoCheckers(cached(checker.facts), cached(checker.summaries))
    if isinstance(checker, CachedChecker):
        return checker
    code = _code_digest(type(checker))
    if checker.sha256 is None or code is None:
        return checker
    digest = hashlib.sha256(f"{checker.sha256}\n{code}".encode()).hexdigest()
    return CachedChecker(checker, digest)


@functools.cache
def _code_digest(kind: type) -> str | None:
    """Return the digest of the source files in the folder of a class; None if the class is in no file."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:
        return None
    return cache.source_digest(*sorted(Path(file).parent.glob("*.py")))


def _to_bytes(verdict: Verdict) -> bytes:
    refutation = verdict.refutation
    if refutation is None:
        refutation = math.nan
    return struct.pack("<ff", verdict.score, refutation) + verdict.window.encode("utf-8", "surrogatepass")


def _from_bytes(row: bytes) -> Verdict:
    score, refutation = struct.unpack_from("<ff", row)
    window = row[8:].decode("utf-8", "surrogatepass")
    if math.isnan(refutation):
        return Verdict(score, window)
    return Verdict(score, window, refutation)


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
    faithful = _own_sources(passages, own, k)
    factual = _independent_sources(passages, independent, k)
    # Score all pairs of passage and source, and of summary and passage.
    pairs, summaries = [], []
    for passage, sources, others in zip(passages, faithful, factual, strict=True):
        for source in (*sources, *others):
            if source.text != passage.text:
                pairs.append(Pair(passage.text, source.in_context))
        if with_summary and (sources or others) and passage.pruned not in (None, passage.text):
            summaries.append(Pair(passage.pruned, passage.text))
    if isinstance(checker, TwoCheckers):
        fact_support = _support_of(checker.facts, pairs)
        summary_support = _support_of(checker.summaries, summaries)
    else:
        fact_support = summary_support = _support_of(checker, [*pairs, *summaries])
    # Take the best source of each passage, and average with the score of its summary.
    judged = []
    for passage, sources, others in zip(passages, faithful, factual, strict=True):
        faithfulness, near = _best(passage, sources, fact_support)
        factuality, other = _best(passage, others, fact_support)
        if factuality is not None and factuality < MIN_SUPPORT and floor:
            texts = [source.in_context for source in others]
            if coverage(passage.text, texts) < floor:
                factuality, other = None, None
        if with_summary:
            # A passage that is its own summary supports it.
            s_sum = 1.0
            if passage.pruned not in (None, passage.text):
                s_sum = summary_support.get(Pair(passage.pruned, passage.text), 1.0)
            if faithfulness is not None:
                faithfulness = (faithfulness + s_sum) / 2
            if factuality is not None:
                factuality = (factuality + s_sum) / 2
        judged.append(
            replace(passage, faithfulness=faithfulness, factuality=factuality, evidence=other or near)
        )
    return judged


def _best(
    passage: Passage, sources: Sequence[Source], support_of: Mapping[Pair, float]
) -> tuple[float | None, Source | None]:
    """Return the highest support by one of the sources, and that source."""
    highest, best = None, None
    for source in sources:
        score = 1.0
        if source.text != passage.text:
            score = support_of[Pair(passage.text, source.in_context)]
        if highest is None or score > highest:
            highest, best = score, source
    return highest, best


def _support_of(checker: Checker, pairs: Sequence[Pair]) -> dict[Pair, float]:
    distinct = list(dict.fromkeys(pairs))
    return dict(zip(distinct, support(checker, distinct).tolist(), strict=True))


def _unless_stated(text: str, sources: list[Source]) -> list[Source]:
    """Return the source that is the text itself, alone, if there is one; else all sources."""
    for source in sources:
        if source.text == text:
            return [source]
    return sources


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
            nearest: list[Source] = []
            if passage.card in own:
                nearest = own[passage.card].find(passage.text, k)
            by_text[key] = _unless_stated(passage.text, nearest)
        sources.append(by_text[key])
    return sources


def _independent_sources(
    passages: Sequence[Passage], evidence: Evidence | None, k: int
) -> list[list[Source]]:
    if evidence is None:
        return [[] for _ in passages]
    by_text: dict[str, list[Source]] = {passage.text: [] for passage in passages}
    texts = list(by_text)
    for text, sources in zip(texts, evidence.find_all(texts, k), strict=True):
        by_text[text] = _unless_stated(text, sources)
    return [by_text[passage.text] for passage in passages]
