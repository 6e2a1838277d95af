"""Bottom-up: all cards generate, the selectors choose, the LLM reads the rest (Knowledge Card, section 2.3).

It depends on no model, hub or prompt: cards and selectors come through their protocols.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from kcard.errors import UsageError
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.disagreements import BEATEN_BY_INDEX, beaten_by_index, without_duplicates
from kcard.integrators.options import AskOptions
from kcard.integrators.pool_views import Selectors, generate
from kcard.interfaces import Array, Generator, valid
from kcard.selectors.factuality import draw, judge
from kcard.selectors.relevance import top
from kcard.types import Context, Passage, Question, Sampling, derive_seed


@dataclass(frozen=True)
class BottomUp:
    """Every card generates n1 documents; relevance keeps n2, which are pruned; factuality keeps n3.

    The defaults are the paper's: n1=3, n2=5, n3=3. Exact duplicates are merged before relevance.

    floor           relevance keeps only documents with at least this share of the best score. The paper has none (0),
                    but with few cards, documents that are true but off the subject would get places in the draw
    min_factuality  documents with a known lower factuality are not drawn; the paper has 0, and its draw hardly prefers
                    true documents to false ones
    factuality_k    the best documents, of which n3 are drawn; None: twice n3 (kcard.selectors.factuality.draw)
    compare_index   whether a model's documents go behind those of its card's index (beaten_by_index); not the paper's
    max_cards       of more cards, only those that fit the question best generate; in the paper all 25 do
    """

    pool: Generator
    selectors: Selectors
    sampling: Sampling
    n1: int = AskOptions.n1
    n2: int = AskOptions.n2
    n3: int = AskOptions.n3
    floor: float = AskOptions.floor
    min_factuality: float = AskOptions.min_factuality
    max_cards: int = AskOptions.max_cards
    factuality_k: int | None = AskOptions.factuality_k
    compare_index: bool = AskOptions.compare_index

    def gather(self, questions: Sequence[Question]) -> list[Context]:
        """Return one Context per question; kept passages come first, the most relevant in front."""
        cards = self.pool.cards
        if len(cards) <= self.max_cards:
            names = tuple(card.name for card in cards)
            return self.run(questions, [names] * len(questions), self.sampling)
        nearest = []
        for question in questions:
            nearest.append([card.name for card in self._ranker(question.text, self.max_cards)])
        note = (
            f"only the {self.max_cards} of {len(cards)} cards nearest to the question were used (--max-cards)"
        )
        contexts = self.run(questions, nearest, self.sampling)
        return [replace(context, notes=(*context.notes, note)) for context in contexts]

    @functools.cached_property
    def _ranker(self) -> CardRanker:
        return self.selectors.nearest(self.pool.cards)

    def run(
        self, questions: Sequence[Question], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Context]:
        """Return one Context per question, from its own cards; see Step of top_down.py."""
        written = generate(self.pool, questions, cards, self.n1, sampling)
        distinct = [without_duplicates(passages) for passages in written]
        texts = [question.text for question in questions]
        beaten = [[False] * len(passages) for passages in distinct]
        if self.compare_index:
            beaten = beaten_by_index(texts, distinct)
        # Sort each question's documents by relevance, with those that an index beats last.
        fitting: list[list[Passage]] = []
        behind: list[list[Passage]] = []
        for question, passages, is_beaten in zip(texts, distinct, beaten, strict=True):
            scores = self._relevance_of(question, passages)
            first, last = [], []
            for i in top(scores, len(passages)):
                passage = replace(passages[i], relevance=float(scores[i]))
                if is_beaten[i]:
                    last.append(passage)
                else:
                    first.append(passage)
            fitting.append(first)
            behind.append(last)
        # Prune those that relevance keeps of the documents that no index beats.
        candidates = []
        for question, ranked_passages in zip(texts, fitting, strict=True):
            candidates.append(self._pruned(question, ranked_passages))
        judged = judge(
            list(chain.from_iterable(candidates)),
            self.selectors.own,
            self.selectors.checker,
            independent=self.selectors.independent,
        )
        # Draw n3 of each question's documents by factuality; behind them stand those that were not pruned.
        contexts = []
        scored = iter(judged)
        for question, passages, group, rest in zip(texts, fitting, candidates, behind, strict=True):
            marked = self._drawn(list(islice(scored, len(group))), derive_seed(sampling.seed, question))
            less = f"others are more relevant (--n2 {self.n2}, --floor {self.floor:g})"
            marked += [replace(passage, reason=less) for passage in passages[len(group) :]]
            marked += [replace(passage, reason=BEATEN_BY_INDEX) for passage in rest]
            contexts.append(Context(tuple(marked)))
        return contexts

    def _relevance_of(self, question: str, passages: Sequence[Passage]) -> Array:
        relevance = self.selectors.relevance
        scores = relevance.scores(question, [passage.text for passage in passages])
        return valid(scores, len(passages), (-1.0, 1.0), f"relevance {type(relevance).__name__}")

    def _pruned(self, question: str, ranked: Sequence[Passage]) -> list[Passage]:
        """Return the n2 most relevant passages, pruned."""
        pruner = self.selectors.pruner
        relevance = [passage.relevance or 0.0 for passage in ranked]
        near = ranked[: len(top(relevance, self.n2, self.floor))]
        texts = pruner.prune(question, [passage.text for passage in near])
        if len(texts) != len(near):
            raise UsageError(
                f"pruner {type(pruner).__name__} returned {len(texts)} texts for {len(near)} documents: it must "
                "return one for each"
            )
        return [replace(passage, pruned=text) for passage, text in zip(near, texts, strict=True)]

    def _drawn(self, passages: Sequence[Passage], seed: int) -> list[Passage]:
        """Return n3 passages, drawn by their support and marked as kept, and behind them the others with a reason."""
        able = []
        for i, passage in enumerate(passages):
            if passage.support is None or passage.support >= self.min_factuality:
                able.append(i)
        chosen = draw([passages[i].support for i in able], self.n3, seed, self.factuality_k)
        drawn = sorted(able[i] for i in chosen)
        marked = [replace(passages[i], kept=True) for i in drawn]
        for i, passage in enumerate(passages):
            if i in drawn:
                continue
            reason = f"{self.n3} others were drawn by their support (--n3)"
            if i not in able:
                reason = f"its support is below {self.min_factuality:g} (--min-factuality)"
            marked.append(replace(passage, reason=reason))
        return marked
