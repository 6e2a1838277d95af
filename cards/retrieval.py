"""Retrieval cards: the passages of a corpus that fit the question best, word for word (KC-13).

BM25 finds candidates. Where the corpus is English the sentence encoder ranks them with it, by

    (words + cosine) / 2        words = BM25 / what a passage with all words of the question would have, at most 1

It knows no model of a card.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kcard.answer import Passage, Source
from kcard.cards.folder import Card
from kcard.cards.passages import index, passages
from kcard.protocols import Array
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.cards.base import Shelf
    from kcard.cards.kinds import CardWriter

__all__ = ["RetrievalCard", "load"]

# Candidates that the encoder reads; with 50 the first passage was right no more often (docs/log.md).
CANDIDATES = 20
LEXICAL = 0.5
# Embeddings that are kept, 1.5 kB each.
REMEMBERED = 50_000


def load(card: Card, shelf: "Shelf") -> "CardWriter":
    """The writer of a card's index. Raises DamagedCard where the index does not fit the passages."""
    del shelf
    return RetrievalCard(card)


class RetrievalCard:
    """Writes passages of the corpus: document 1 is the best for the question, document 2 the next, and so on."""

    def __init__(self, card: Card) -> None:
        self._name = card.name
        self._english = card.manifest.language.partition("-")[0].lower() == "en"
        self._passages, self._index = passages(card.folder), index(card)
        self._embeddings: dict[int, Array] = {}

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardWriter; nothing is drawn, so the seed plays no part.

        Documents beyond the passages that share a word with the question are empty. `Passage.source` holds
        the text, its file and line, and the score, in [-1, 1].
        """
        del sampling
        found = [self._index.search(question, max(CANDIDATES, documents)) for question in questions]
        ranked = self._ranked(questions, found)
        empty = [Passage(self._name, "")] * documents
        return [[*map(self._passage, group[:documents]), *empty][:documents] for group in ranked]

    def _passage(self, found: tuple[int, float]) -> Passage:
        row, score = found
        source: Source = replace(self._passages[row], score=score)
        return Passage(self._name, source.text, source=source)

    def _ranked(
        self, questions: Sequence[str], found: Sequence[list[tuple[int, float]]]
    ) -> list[list[tuple[int, float]]]:
        """The candidates of each question with their final scores, best first."""
        possible = [self._index.best_possible(question) for question in questions]
        lexical = [
            [(row, min(score / most, 1.0)) for row, score in group]
            for group, most in zip(found, possible, strict=True)
        ]
        if not self._english:
            return lexical
        from kcard import encoder

        self._embed(dict.fromkeys(row for group in found for row, _ in group))
        ranked = []
        for asked, group in zip(encoder.embed(questions), lexical, strict=True):
            cosines = [float(self._embeddings[row] @ asked) for row, _ in group]
            # Rounded, since the last bits of an embedding depend on who shares its batch.
            scores = [
                round(LEXICAL * s + (1 - LEXICAL) * c, 5) for (_, s), c in zip(group, cosines, strict=True)
            ]
            order = np.argsort(-np.array(scores), kind="stable")
            ranked.append([(group[i][0], scores[i]) for i in order.tolist()])
        return ranked

    def _embed(self, rows: dict[int, None]) -> None:
        """Have the embeddings of these rows at hand; those of former questions are kept."""
        from kcard import encoder

        if len(self._embeddings) > REMEMBERED:
            self._embeddings.clear()
        new = [row for row in rows if row not in self._embeddings]
        self._embeddings.update(
            zip(new, encoder.embed([self._passages[row].text for row in new]), strict=True)
        )
