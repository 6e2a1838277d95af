"""Bottom-up: all cards write, the selectors choose, the LLM reads what is left (Knowledge Card, section 2.3).

It knows no model, no hub and no prompt: cards and selectors come through their protocols.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.errors import UsageError
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.citations import Context, beaten_by_index, without_duplicates
from kcard.integrators.options import AskOptions
from kcard.integrators.pool_views import Selectors
from kcard.interfaces import Generator, valid
from kcard.llms import client
from kcard.selectors.factuality import draw, judge
from kcard.selectors.relevance import top
from kcard.types import Passage, Sampling, derive_seed

__all__ = ["BottomUp"]


@dataclass(frozen=True)
class BottomUp:
    """Every card writes n1 documents; relevance keeps n2, which are pruned; factuality keeps n3.

    Defaults are the paper's: n1=3, n2=5, n3=3. Exact duplicates are merged before relevance. `floor`: relevance
    keeps only documents that have at least that share of the best one's score, which the paper does not ask for
    (0): with few cards, what is true but beside the question would take places in the draw. `min_factuality`: what
    is known to have less is not drawn at all; 0 is the paper's, whose draw hardly prefers true to false. `max_cards`:
    of more cards those write that fit the question best; the paper has 25, and all of them write.
    """

    writer: Generator
    selectors: Selectors
    sampling: Sampling
    n1: int = AskOptions.n1
    n2: int = AskOptions.n2
    n3: int = AskOptions.n3
    floor: float = AskOptions.floor
    min_factuality: float = AskOptions.min_factuality
    max_cards: int = AskOptions.max_cards

    def gather(self, questions: Sequence[str]) -> list[Context]:
        """One Context a question; kept passages come first, the most relevant of them in front."""
        cards = self.writer.cards
        if len(cards) <= self.max_cards:
            names = tuple(card.name for card in cards)
            return self.run(questions, [names] * len(questions), self.sampling)
        nearest = [self._nearest(question, self.max_cards) for question in questions]
        gathered = self.run(questions, [[card.name for card in near] for near in nearest], self.sampling)
        note = f"of {len(cards)} cards the {self.max_cards} nearest to the question wrote (--max-cards)"
        return [replace(found, notes=(*found.notes, note)) for found in gathered]

    @functools.cached_property
    def _nearest(self) -> CardRanker:
        return self.selectors.nearest(self.writer.cards)

    def run(
        self, questions: Sequence[str], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Context]:
        """The same for cards of each question's own; see Step of top_down.py."""
        written = client.write(self.writer, questions, cards, self.n1, sampling)
        different = [without_duplicates(passages) for passages in written]
        out = beaten_by_index(questions, different)
        ranked = [self._rank(*row) for row in zip(questions, different, out, strict=True)]
        standing = [row.count(False) for row in out]
        candidates = [self._prune(*row) for row in zip(questions, ranked, standing, strict=True)]
        judged = judge(
            [p for group in candidates for p in group],
            self.selectors.own,
            self.selectors.checker,
            independent=self.selectors.independent,
        )
        gathered, start = [], 0
        for question, passages, group in zip(questions, ranked, candidates, strict=True):
            chosen = self._keep(judged[start : start + len(group)], derive_seed(sampling.seed, question))
            start += len(group)
            gathered.append(Context(chosen + tuple(passages[len(group) :])))
        return gathered

    def _rank(self, question: str, candidates: Sequence[Passage], out: Sequence[bool]) -> list[Passage]:
        """The passages with their relevance, most relevant first, those beaten_by_index by an index last."""
        selector = self.selectors.relevance
        scores = valid(
            selector.scores(question, [p.text for p in candidates]),
            len(candidates),
            (-1.0, 1.0),
            f"relevance {type(selector).__name__}",
        )
        order = sorted(top(scores, len(candidates)), key=lambda i: out[i])
        return [replace(candidates[i], relevance=float(scores[i])) for i in order]

    def _prune(self, question: str, ranked: Sequence[Passage], standing: int) -> list[Passage]:
        """Of the first so many documents those that relevance keeps, with their pruned form."""
        near = top([p.relevance or 0.0 for p in ranked[:standing]], self.n2, self.floor)
        pruner = self.selectors.pruner
        pruned = pruner.prune(question, [ranked[i].text for i in near])
        if len(pruned) != len(near):
            raise UsageError(
                f"pruner {type(pruner).__name__} gave {len(pruned)} texts for {len(near)}: it must return "
                "one per document"
            )
        return [replace(ranked[i], pruned=text) for i, text in zip(near, pruned, strict=True)]

    def _keep(self, judged: Sequence[Passage], seed: int) -> tuple[Passage, ...]:
        able = [i for i, p in enumerate(judged) if p.support is None or p.support >= self.min_factuality]
        drawn = {able[i] for i in draw([judged[i].support for i in able], self.n3, seed=seed)}
        marked = [replace(p, kept=i in drawn) for i, p in enumerate(judged)]
        return tuple(sorted(marked, key=lambda p: not p.kept))
