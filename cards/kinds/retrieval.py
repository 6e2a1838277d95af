"""Retrieval cards: the passages of a corpus that answer the question best, word for word (KC-13).

Candidates are found by words and, where the card has embeddings, by meaning:

    (1 - LEXICAL) * cosine + LEXICAL * words     words = BM25 / what a passage with all words of the question had

The embedded reader reads the best of them and ranks them by the probability that they answer the question. It and the
encoder know English; a card in another language is searched by its words alone. It knows no model of a card.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kcard.answer import Passage
from kcard.cards.format import dense
from kcard.cards.format.folder import Card
from kcard.cards.format.passages import INDEX, index, passages
from kcard.cards.kinds.generator import padded
from kcard.protocols import Array
from kcard.sampling import Sampling
from kcard.words import is_english, words

if TYPE_CHECKING:
    from kcard.cards.lm.loader import Loader
    from kcard.reader.reading import Reading

__all__ = ["RetrievalCard", "load"]

LEXICAL = 0.35
RERANKED = 8  # candidates that the reader reads
EMBEDDED = 20  # candidates by words that are embedded for a question, where the card has no embeddings
PRIOR = 8.0  # log-odds of the first stage's score, from 0 to 1, beside the reader's

Ranked = list[tuple[int, float]]


def load(card: Card, models: "Loader") -> "RetrievalCard":
    """The writer of a card's index. Raises DamagedCard where the index does not fit the passages."""
    del models
    return RetrievalCard(card)


class RetrievalCard:
    """Writes passages of the corpus: document 1 is the best for the question, document 2 the next, and so on."""

    def __init__(self, card: Card) -> None:
        self._name = card.name
        self._english = is_english(card.manifest.language)
        self._passages, self._index = passages(card.folder), index(card)
        found = dense.load(card.folder / INDEX) if self._english else None
        self._dense = found if found is not None and len(found) == len(self._passages) else None

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardGenerator; nothing is drawn, so the seed plays no part.

        Documents beyond the passages that have to do with the question are empty. `Passage.source` holds the text, its
        file and line, and its score: the probability that it answers the question, in [0, 1]; in another language
        than English, how many of the question's words it has, weighted by their rarity.
        """
        del sampling
        ranked = self._candidates(questions)
        if self._english:
            ranked = self._reranked(questions, [found[: max(RERANKED, documents)] for found in ranked])
        sources = (
            [replace(self._passages[row], score=score) for row, score in found[:documents]]
            for found in ranked
        )
        return [padded(self._name, found, documents) for found in sources]

    def _candidates(self, questions: Sequence[str]) -> list[Ranked]:
        """The candidates of each question with the scores of the first stage, best first."""
        lexical = [self._lexical(question) for question in questions]
        if not self._english:
            return [_best(scores, np.flatnonzero(scores)) for scores in lexical]
        from kcard import embeddings

        asked = embeddings.embed(questions)
        if self._dense is not None:
            cosines = self._dense.cosines(asked)
            return [
                _best((1 - LEXICAL) * near + LEXICAL * scores, np.arange(len(scores)))
                if words(question)
                else []
                for question, near, scores in zip(questions, cosines, lexical, strict=True)
            ]
        return [self._embedded(query, scores) for query, scores in zip(asked, lexical, strict=True)]

    def _lexical(self, question: str) -> Array:
        """BM25 of each passage, as a share of the best possible, in [0, 1]."""
        scores = self._index.scores(question)
        possible = self._index.best_possible(question)
        return np.minimum(scores / possible, 1.0) if possible else scores

    def _embedded(self, query: Array, lexical: Array) -> Ranked:
        """Candidates by words alone, embedded now: for a card whose passages were not."""
        from kcard.embeddings import embed

        rows = [row for row, _ in _best(lexical, np.flatnonzero(lexical))[:EMBEDDED]]
        if not rows:
            return []
        near = embed([self._passages[row].in_context for row in rows]) @ query
        scores = (1 - LEXICAL) * near + LEXICAL * lexical[rows]
        return [(rows[at], score) for at, score in _best(scores, np.arange(len(rows)))]

    def _reranked(self, questions: Sequence[str], candidates: Sequence[Ranked]) -> list[Ranked]:
        """The candidates of each question by the probability that they answer it."""
        from kcard.reader.reading import read_all

        texts = [[self._passages[row].in_context for row, _ in found] for found in candidates]
        read = read_all([*zip(questions, texts, strict=True)])
        return [_by_relevance(found, readings) for found, readings in zip(candidates, read, strict=True)]


def _by_relevance(candidates: Ranked, readings: "Sequence[Reading]") -> Ranked:
    odds = [r.relevance + PRIOR * score for r, (_, score) in zip(readings, candidates, strict=True)]
    order = sorted(range(len(candidates)), key=lambda at: -round(odds[at], 3))
    return [(candidates[at][0], round(1 / (1 + math.exp(-readings[at].relevance)), 5)) for at in order]


def _best(scores: Array, rows: "np.typing.NDArray[np.int64]") -> Ranked:
    """These rows, best first, equal ones in their order. Rounded, since the last bits of an embedding depend on who
    shares its batch."""
    rounded = np.round(scores[rows], 5)
    order = np.argsort(-rounded, kind="stable")
    return [(int(rows[at]), float(rounded[at])) for at in order]
