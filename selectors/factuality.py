"""Factuality: how far evidence supports what a card wrote (Knowledge Card, section 2.2).

    s = (s_sum + s_fact) / 2
    s_sum   the checker's support of the pruned document by the original one; of two checkers, the one for summaries
    s_fact  the highest support of the document by one of the k texts that evidence search found for it

Measured against the card's own corpus s is faithfulness, against independent evidence factuality. Evidence scores a
document; it never reaches the LLM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kcard.answer import Passage, Source
from kcard.lookup import find_all
from kcard.protocols import Checker, Evidence, Pair
from kcard.selectors.checker import SUPPORTED
from kcard.selectors.models.two_checkers import TwoCheckers
from kcard.selectors.verdicts import support
from kcard.selectors.windows import coverage

__all__ = ["judge"]


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
        kept = summed[summary[0]] if summary else 1.0
        faithfulness, near = _best(passage, sources, scored)
        factuality, other = _best(passage, others, scored)
        if factuality is not None and factuality < SUPPORTED and floor:
            texts = [source.in_context for source in others]
            if coverage(passage.text, texts) < floor:
                factuality, other = None, None
        if with_summary:
            faithfulness, factuality = (
                None if s is None else (s + kept) / 2 for s in (faithfulness, factuality)
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
    known: dict[tuple[str, str], list[Source]] = {}
    found = []
    for passage in passages:
        if passage.source is not None and passage.card in own:
            found.append([passage.source])
            continue
        key = (passage.card, passage.text)
        if key not in known:
            evidence = own.get(passage.card)
            known[key] = evidence.find(passage.text, k) if evidence else []
        found.append(known[key])
    return found


def _others(passages: Sequence[Passage], evidence: Evidence | None, k: int) -> list[list[Source]]:
    if evidence is None:
        return [[] for _ in passages]
    texts = list(dict.fromkeys(p.text for p in passages))
    found = dict(zip(texts, find_all(evidence, texts, k), strict=True))
    return [found[p.text] for p in passages]
