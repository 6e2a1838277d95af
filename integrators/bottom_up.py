"""Bottom-up: all cards generate, the selectors choose, the LLM reads the rest (Knowledge Card, section 2.3).

It depends on no model, hub or prompt: cards and selectors come through their protocols.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.errors import UsageError
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.disagreements import BEATEN, beaten_by_index, without_duplicates
from kcard.integrators.options import AskOptions
from kcard.integrators.pool_views import Selectors, generate
from kcard.interfaces import Generator, valid
from kcard.selectors.factuality import draw, judge
from kcard.selectors.relevance import top
from kcard.types import Context, Question, Sampling, derive_seed


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
        nearest = [self._ranker(question.text, self.max_cards) for question in questions]
        contexts = self.run(questions, [[card.name for card in near] for near in nearest], self.sampling)
        note = (
            f"only the {self.max_cards} of {len(cards)} cards nearest to the question were used (--max-cards)"
        )
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
        beaten = (
            beaten_by_index(texts, distinct)
            if self.compare_index
            else [[False] * len(passages) for passages in distinct]
        )
        # Score each question's documents by relevance and sort them by it, with those that an index beats last.
        relevance, ranked = self.selectors.relevance, []
        for question, passages, behind in zip(texts, distinct, beaten, strict=True):
            scores = valid(
                relevance.scores(question, [p.text for p in passages]),
                len(passages),
                (-1.0, 1.0),
                f"relevance {type(relevance).__name__}",
            )
            order = sorted(top(scores, len(passages)), key=behind.__getitem__)
            ranked.append([replace(passages[i], relevance=float(scores[i])) for i in order])
        # Prune those that relevance keeps of the documents that no index beats.
        pruner, candidates = self.selectors.pruner, []
        for question, passages, behind in zip(texts, ranked, beaten, strict=True):
            near = top([p.relevance or 0.0 for p in passages[: behind.count(False)]], self.n2, self.floor)
            pruned = pruner.prune(question, [passages[i].text for i in near])
            if len(pruned) != len(near):
                raise UsageError(
                    f"pruner {type(pruner).__name__} returned {len(pruned)} texts for {len(near)} documents: it must "
                    "return one for each"
                )
            candidates.append(
                [replace(passages[i], pruned=text) for i, text in zip(near, pruned, strict=True)]
            )
        judged = judge(
            [p for group in candidates for p in group],
            self.selectors.own,
            self.selectors.checker,
            independent=self.selectors.independent,
        )
        # Draw n3 of each question's documents by factuality.
        contexts, start = [], 0
        for question, passages, behind, group in zip(texts, ranked, beaten, candidates, strict=True):
            own = judged[start : start + len(group)]
            able = [i for i, p in enumerate(own) if p.support is None or p.support >= self.min_factuality]
            seed = derive_seed(sampling.seed, question)
            support = [own[i].support for i in able]
            drawn = {able[i] for i in draw(support, self.n3, seed, self.factuality_k)}
            marked = [replace(own[i], kept=True) for i in sorted(drawn)]
            for i, passage in enumerate(own):
                reason = f"{self.n3} others were drawn by their support (--n3)"
                if i not in able:
                    reason = f"its support is below {self.min_factuality:g} (--min-factuality)"
                if i not in drawn:
                    marked.append(replace(passage, reason=reason))
            # Behind them those that were not pruned: an index beats them, or they are less relevant.
            start += len(group)
            less = f"others are more relevant (--n2 {self.n2}, --floor {self.floor:g})"
            fitting = behind.count(False)
            for i, passage in enumerate(passages[len(group) :], start=len(group)):
                marked.append(replace(passage, reason=less if i < fitting else BEATEN))
            contexts.append(Context(tuple(marked)))
        return contexts
