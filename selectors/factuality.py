"""Factuality: how far evidence supports what a card wrote (Knowledge Card, section 2.2).

    s = (s_sum + s_fact) / 2
    s_sum   the checker's support of the pruned document by the original one; of two checkers, the one for summaries
    s_fact  the highest support of the document by one of the k texts that evidence search found for it

Evidence scores a document; it never reaches the LLM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kcard.answer import Passage, Source
from kcard.protocols import Checker, Evidence, Pair
from kcard.selectors.models.two_checkers import TwoCheckers
from kcard.selectors.verdicts import support

__all__ = ["judge"]


def judge(
    passages: Sequence[Passage],
    evidence: Mapping[str, Evidence],
    checker: Checker,
    k: int = 3,
    with_summary: bool = True,
) -> list[Passage]:
    """The passages with `factuality` in [0, 1] and with the `evidence` that supports each of them most.

    `evidence` is looked up by the passage's card. Where a card has none, or nothing is found in it,
    factuality and evidence are None: unknown. `with_summary=False` leaves s_sum out: s = s_fact. A document
    that was not pruned, or that pruning left as it was, is its own summary: s_sum = 1. A document that is one of
    the texts word for word is supported by it, 1, and no other is read. Every pair of every passage goes to the
    checker in one call, each once. Raises UsageError where the checker gives what are no scores (verdicts.py).
    """
    found = [_stated(p, sources) for p, sources in zip(passages, _search(passages, evidence, k), strict=True)]
    facts = [
        [Pair(p.text, source.text) for source in sources if source.text != p.text]
        for p, sources in zip(passages, found, strict=True)
    ]
    sums = [
        [Pair(p.pruned, p.text)] if with_summary and sources and p.pruned not in (None, p.text) else []
        for p, sources in zip(passages, found, strict=True)
    ]
    if isinstance(checker, TwoCheckers):
        scored, summed = _scored(checker.facts, facts), _scored(checker.summaries, sums)
    else:
        scored = summed = _scored(checker, [*facts, *sums])
    judged = []
    for passage, sources, fact, summary in zip(passages, found, facts, sums, strict=True):
        if not sources:
            judged.append(replace(passage, factuality=None, evidence=None))
            continue
        scores = [scored[pair] for pair in fact] or [1.0]
        best = max(range(len(scores)), key=lambda i: scores[i])
        score = scores[best]
        if with_summary:
            score = (score + (summed[summary[0]] if summary else 1.0)) / 2
        judged.append(replace(passage, factuality=score, evidence=sources[best]))
    return judged


def _scored(checker: Checker, groups: Sequence[Sequence[Pair]]) -> dict[Pair, float]:
    pairs = list(dict.fromkeys(pair for group in groups for pair in group))
    return dict(zip(pairs, support(checker, pairs).tolist(), strict=True))


def _stated(passage: Passage, sources: list[Source]) -> list[Source]:
    """The source that is the document itself, alone, where there is one."""
    own = [source for source in sources if source.text == passage.text]
    return own[:1] or sources


def _search(passages: Sequence[Passage], evidence: Mapping[str, Evidence], k: int) -> list[list[Source]]:
    """What evidence search finds for each passage; the same text of the same card is sought once."""
    known: dict[tuple[str, str], list[Source]] = {}
    for passage in passages:
        key = (passage.card, passage.text)
        if key not in known:
            source = evidence.get(passage.card)
            known[key] = source.find(passage.text, k) if source else []
    return [known[p.card, p.text] for p in passages]
