"""Retrieval cards, and cards with a model and an index.

Candidates are found by words and by static embeddings, without network access:

    (1 - LEXICAL_WEIGHT) * cosine + LEXICAL_WEIGHT * words
    words = BM25 / score of a passage with all words of the question

times the agreement of their numbers with the question's (kcard.text), minus a penalty for missing options ("-R" does
not match "-r").

A small ranker orders the best of them by a window of each. The embedded reader then reads the first ones in full, a few
at a time, until one is likelier to answer than the next, and ranks those read by the probability that they answer.
Embeddings, ranker and reader are English; cards in other languages are searched by words alone. No card models are
used.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from kcard.cards import passages as cards_passages
from kcard.cards.card import Card, kind_of
from kcard.cards.passages import INDEX, load_index, passages
from kcard.embedded import static_embeddings as static
from kcard.interfaces import Array, CardGenerator
from kcard.text import agreement, command_options, is_english, numbers, words
from kcard.types import Passage, Sampling, Source

if TYPE_CHECKING:
    from kcard.cards.models.loader import Loader


def padded(card: str, sources: Sequence[Source], documents: int) -> list[Passage]:
    """Return exactly `documents` passages from ranked sources, padded with empty ones."""
    passages = [Passage(card, source.text, source=source) for source in sources[:documents]]
    return passages + [Passage(card, "")] * (documents - len(passages))


class ModelWithIndex(CardGenerator):
    """A card with a model and an index of the same corpus; both generate, and the selectors choose."""

    def __init__(self, model: CardGenerator, index: CardGenerator) -> None:
        self._parts = model, index
        self.size, self.unsupported = model.size, model.unsupported

    @property
    def parts(self) -> tuple[CardGenerator, ...]:
        return self._parts

    def generate(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """Generate `documents` passages with the model, then as many with the index, which have a `source`."""
        model, index = self._parts
        generated = model.generate(questions, documents, sampling)
        retrieved = index.generate(questions, documents, sampling)
        return [[*own, *found] for own, found in zip(generated, retrieved, strict=True)]


def load_generator(card: Card, models: "Loader") -> CardGenerator:
    """Load a card with the loader of its kind; one with model and index gets both generators."""
    module, function = kind_of(card.manifest).loader.split(":")
    loader: Any = getattr(import_module(module), function)
    generator: CardGenerator = loader(card, models)
    if not card.manifest.index:
        return generator
    return ModelWithIndex(generator, load_retrieval_card(card, models))


LEXICAL_WEIGHT = 0.5
CANDIDATES = 16
DUPLICATE_FACTOR = 2  # times as many candidates, before duplicates are removed
AGREEMENT_FACTOR = 2  # times as many candidates have their numbers and options compared with the question's
# Penalties on the first score per option of the question that the passage lacks, or only mentions.
ABSENCE_PENALTY, MENTION_PENALTY = 0.6, 0.1
RANKER_PRIOR = 32.0  # log-odds per unit of the first stage's score, in [0, 1], added to the ranker's
FIRST_ROUND, NEXT_ROUND = 3, 2  # candidates that the reader reads at first, and per further round
READER_PRIOR = 8.0  # log-odds per unit of the first stage's score, added to the reader's
MIN_LEAD = 3.0  # log-odds by which the best must lead the next candidate's prior for reading to stop

# The text before an option that is explained: the beginning of a line or heading, with other options and marks.
EXPLANATION_START = r"(?:^|: |> )(?:[-*]\s)?[‘'\"`]?(?=-)(?:[^.:;\n]{0,40}?(?<![\w-]))?"

Ranked = list[tuple[int, float]]


def load_retrieval_card(card: Card, models: "Loader") -> "RetrievalCard":
    """Load the generator of a card's index. Raises DamagedCard if the index does not fit the passages."""
    del models
    return RetrievalCard(card)


class RetrievalCard(CardGenerator):
    """Returns passages of the corpus: document 1 is the best for the question, document 2 the next, and so on."""

    def __init__(self, card: Card) -> None:
        self._name = card.name
        self._english = is_english(card.manifest.language)
        self._passages, self._index = passages(card.folder), load_index(card)
        self._dense = cards_passages.load_dense(card.folder / INDEX) if self._english else None

    def generate(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """Generate as CardGenerator does, without sampling: the seed has no effect.

        Documents beyond the passages relevant to the question are empty. `Passage.source` holds the text, its file and
        line, and its score: the probability that it answers the question, in [0, 1]; for languages other than English,
        the share of the question's words in it, weighted by rarity.
        """
        del sampling
        most = max(CANDIDATES, documents)
        ranked = []
        for rows in self._find_candidates(questions, DUPLICATE_FACTOR * most):
            # Remove exact duplicates, such as a page stored under two names.
            first: dict[str, tuple[int, float]] = {}
            for row, score in rows:
                first.setdefault(self._passages[row].text, (row, score))
            ranked.append([*first.values()][:most])
        if self._english:
            ranked = self._rerank(questions, ranked, documents)
        passages = []
        for question, rows in zip(questions, ranked, strict=True):
            options = command_options(question)
            if options:
                explanations: dict[int, float] = {}
                for row, score in rows:
                    explanations.setdefault(self._explanation_of(options, row), score)
                rows = [*explanations.items()]
            sources = [replace(self._passages[row], score=score) for row, score in rows[:documents]]
            passages.append(padded(self._name, sources, documents))
        return passages

    def _explanation_of(self, options: Sequence[str], row: int) -> int:
        """Return the first passage under the heading of a passage, if this is one of the options; else the passage."""
        section, file = self._passages[row].section, self._passages[row].file
        named = command_options(section.rpartition(" > ")[2])
        if any(option in named for option in options):
            while row and (self._passages[row - 1].section, self._passages[row - 1].file) == (section, file):
                row -= 1
        return row

    def _find_candidates(self, questions: Sequence[str], most: int) -> list[Ranked]:
        """Find at most `most` candidates per question, best first, with the scores of the first stage."""
        # BM25 of each passage, as a share of the best possible, in [0, 1].
        lexical = []
        for question in questions:
            bm25, possible = self._index.scores(question), self._index.best_possible(question)
            if possible:
                bm25 = np.minimum(bm25 / possible, 1.0)
            lexical.append(bm25)
        if not self._english:
            return [_take_best(scores, np.flatnonzero(scores), most) for scores in lexical]
        vectors = static.embed(questions)
        if self._dense is None:
            # A card without embeddings of this encoder: find candidates by words alone and embed them now.
            ranked = []
            for vector, shares in zip(vectors, lexical, strict=True):
                likely = [row for row, _ in _take_best(shares, np.flatnonzero(shares), most)]
                rows = np.array(likely, np.int64)
                near = static.embed([self._passages[row].in_context for row in likely]) @ vector
                mixed = np.zeros(len(shares), np.float32)
                mixed[rows] = (1 - LEXICAL_WEIGHT) * near + LEXICAL_WEIGHT * shares[rows]
                ranked.append(_take_best(mixed, rows, most))
            return ranked
        scores = (1 - LEXICAL_WEIGHT) * self._dense.cosines(vectors) + LEXICAL_WEIGHT * np.stack(lexical)
        every = np.arange(len(self._passages))
        candidates = []
        for question, row in zip(questions, scores, strict=True):
            best: Ranked = []
            if words(question):
                best = self._keep_agreeing(question, _take_best(row, every, AGREEMENT_FACTOR * most), most)
            candidates.append(best)
        return candidates

    def _keep_agreeing(self, question: str, candidates: Ranked, most: int) -> Ranked:
        """Keep the best by score, numbers and options, which embeddings, ranker and reader barely distinguish."""
        options = command_options(question)
        if not numbers(question) and not options:
            return candidates[:most]
        agreed = []
        for row, score in candidates:
            text = self._passages[row].in_context
            # An option that a passage explains starts a line or heading; a mere mention counts for less.
            lost = 0.0
            for option in dict.fromkeys(options):
                if option not in command_options(text):
                    lost += ABSENCE_PENALTY
                elif not re.search(rf"{EXPLANATION_START}{re.escape(option)}(?![\w-])", text, re.MULTILINE):
                    lost += MENTION_PENALTY
            agreed.append((row, score * agreement(question, text) - lost))
        return sorted(agreed, key=lambda candidate: -candidate[1])[:most]

    def _rerank(self, questions: Sequence[str], candidates: Sequence[Ranked], documents: int) -> list[Ranked]:
        """Rank the candidates read for each question by the probability that they answer it.

        Questions are read in joint rounds; each drops out once its best candidate leads.
        """
        from kcard.embedded.reader import read_all

        # Read the first candidates of each question, then a few more of those still undecided.
        candidates = self._order_by_ranker(questions, candidates)
        relevance: list[list[float]] = [[] for _ in questions]
        reading = [at for at, rows in enumerate(candidates) if rows]
        while reading:
            parts = []
            for at in reading:
                done = len(relevance[at])
                step = NEXT_ROUND if done else max(FIRST_ROUND, documents)
                texts = [self._passages[row].in_context for row, _ in candidates[at][done : done + step]]
                parts.append((questions[at], texts))
            for at, read in zip(reading, read_all(parts), strict=True):
                relevance[at] += [reading.relevance for reading in read]
            # Continue with the questions whose best candidate does not yet lead the prior of the next one.
            unsettled = []
            for at in reading:
                rows, done = candidates[at], len(relevance[at])
                if done >= len(rows):
                    continue
                lead = max(_posterior(relevance[at], rows)) - READER_PRIOR * rows[done][1]
                if not lead >= MIN_LEAD:
                    unsettled.append(at)
            reading = unsettled
        # The candidates that were read, best first, with the probability that each answers.
        ranked = []
        for rows, values in zip(candidates, relevance, strict=True):
            odds = _posterior(values, rows)
            by_odds: Ranked = []
            for at in sorted(range(len(odds)), key=lambda at: -round(odds[at], 3)):
                probability = 1 / (1 + math.exp(-values[at]))
                by_odds.append((rows[at][0], round(probability, 5)))
            ranked.append(by_odds)
        return ranked

    def _order_by_ranker(self, questions: Sequence[str], candidates: Sequence[Ranked]) -> list[Ranked]:
        """Sort the candidates of each question by the ranker, unless all will be read anyway."""
        from kcard.embedded.reader import rank_all

        pairs = []
        for question, rows in zip(questions, candidates, strict=True):
            if len(rows) > FIRST_ROUND:
                pairs += [(question, self._passages[row].in_context) for row, _ in rows]
        scores = iter(np.round(rank_all(pairs), 3).tolist())
        ordered = []
        for rows in candidates:
            if len(rows) > FIRST_ROUND:
                rows = sorted(rows, key=lambda candidate: -(next(scores) + RANKER_PRIOR * candidate[1]))
            ordered.append(rows)
        return ordered


def _posterior(relevance: Sequence[float], candidates: Ranked) -> list[float]:
    """Return the log-odds of the candidates that were read: the reader's, with the first stage's score as prior."""
    return [odds + READER_PRIOR * score for odds, (_, score) in zip(relevance, candidates, strict=False)]


def _take_best(scores: Array, rows: "np.typing.NDArray[np.int64]", most: int) -> Ranked:
    """Return at most `most` of these rows, best first; ties keep their order.

    Rounded, since the last bits of a score depend on the rest of its batch.
    """
    rounded = np.round(scores[rows], 5)
    if len(rows) > most:
        near = np.flatnonzero(rounded >= np.partition(rounded, -most)[-most])
        rows, rounded = rows[near], rounded[near]
    order = np.argsort(-rounded, kind="stable")[:most]
    return [(int(rows[at]), float(rounded[at])) for at in order]
