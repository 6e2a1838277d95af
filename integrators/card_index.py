"""How well each of many cards fits a question, from their descriptions and profiles.

    score = nearest + LEXICAL * covered

nearest   the highest cosine of the question with the card's description and its centroids (cards/format/routing.py)
covered   the share of the question's words that the card holds, each weighted by how few cards hold it (BM25's idf)

LEXICAL was fitted on questions whose card is known (docs/results.md, "Choosing among ten thousand cards"). Of many
cards only CANDIDATES are compared exactly: those that fit best by their mean vector, in COARSE dimensions.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kcard import embeddings
from kcard.cards.format.routing import SCALE, terms_of
from kcard.encoder import DIMENSIONS
from kcard.integrators.profiles import Profiles
from kcard.protocols import Array, Precomputed, Relevance
from kcard.selectors.relevance import Cosine, MiniLM

__all__ = ["CANDIDATES", "CardIndex"]

LEXICAL = 0.26
CANDIDATES = 200
COARSE = 96
COARSE_LEXICAL = 0.4  # a mean vector tells less than the nearest centroid, so that words count for more
READ = 100  # descriptions that a selector reads for a question if it can't read them beforehand
BLOCK = 512  # cards whose means are computed at a time

Ints = npt.NDArray[np.int64]


class CardIndex:
    """Cards with these descriptions and profiles. `relevance` says how near a description is; of the offline selectors
    the cosine counts alone, because covered words take the place of the agreement of numbers."""

    def __init__(self, relevance: Relevance, descriptions: Sequence[str], profiles: Profiles) -> None:
        self._descriptions, self._profiles = descriptions, profiles
        self._relevance = None if isinstance(relevance, MiniLM | Cosine) else relevance
        self._standing = (
            self._relevance.standing(descriptions) if isinstance(self._relevance, Precomputed) else None
        )
        count = len(descriptions)
        described = np.rint(embeddings.matrix(descriptions) * SCALE).astype(np.int8)
        self._rows = np.insert(profiles.centroids, profiles.first[:-1], described, axis=0)
        self._first = profiles.first + np.arange(count + 1)
        held = np.diff(profiles.at)
        self._idf = np.log1p((count - held + 0.5) / (held + 0.5)).astype(np.float32)
        self._unknown = float(np.log1p((count + 0.5) / 0.5))
        self._languages = {str(name): profiles.languages == name for name in np.unique(profiles.languages)}
        self._means: tuple[Array, Array] | None = self._reduced() if count > CANDIDATES else None

    def __call__(self, text: str, most: int = CANDIDATES) -> tuple[Ints, Array]:
        """The numbers of at least `most` cards, or of all if there are fewer, and their scores, best first; of equals
        the earlier one first."""
        vector, covered = embeddings.embed([text])[0], self._covered(text)
        near = None if self._standing is None else self._standing(text)
        cards = self._candidates(vector, covered, near, most)
        scores = self._scores(cards, vector, covered, None if near is None else near[cards])
        order = np.argsort(-scores, kind="stable")
        cards, scores = cards[order], scores[order]
        if self._relevance is None or self._standing is not None:
            return cards, scores
        read = np.sort(cards[:READ])
        said = self._relevance.scores(text, [self._descriptions[i] for i in read])
        scores = self._scores(read, vector, covered, said)
        order = np.argsort(-scores, kind="stable")
        behind = cards[READ:]
        return np.append(read[order], behind), np.append(scores[order], np.full(len(behind), scores.min()))

    def _scores(self, cards: Ints, vector: Array, covered: Array, near: Array | None) -> Array:
        """Those of some cards; `near`: what a selector says of their descriptions in place of the cosine."""
        counts = np.diff(self._first)[cards]
        ends = np.cumsum(counts)
        starts = ends - counts
        places = np.arange(ends[-1]) + np.repeat(self._first[cards] - starts, counts)
        cosines = self._rows[places].astype(np.float32) @ vector / SCALE
        if near is not None:
            cosines[starts] = near
        found: Array = np.maximum.reduceat(cosines, starts) + LEXICAL * covered[cards]
        return found

    def _covered(self, text: str) -> Array:
        """Shape (n,), in [0, 1]."""
        found = np.zeros(len(self._first) - 1, np.float32)
        for language, speaks in self._languages.items():
            part = self._covered_in(text, language)
            found = part if speaks.all() else np.where(speaks, part, found)
        return found

    def _covered_in(self, text: str, language: str) -> Array:
        packed, found = self._profiles, np.zeros(len(self._first) - 1, np.float32)
        terms = np.fromiter(terms_of(text, language), np.uint32)
        places = np.searchsorted(packed.vocabulary, terms)
        total = 0.0
        for term, place in zip(terms.tolist(), places.tolist(), strict=True):
            if place < len(packed.vocabulary) and packed.vocabulary[place] == term:
                total += float(self._idf[place])
                found[packed.holders[packed.at[place] : packed.at[place + 1]]] += self._idf[place]
            else:
                total += self._unknown
        return found / total if total else found

    def _candidates(self, vector: Array, covered: Array, near: Array | None, most: int) -> Ints:
        """The cards that are compared exactly, ascending."""
        count, wanted = len(covered), max(CANDIDATES, most)
        if self._means is None or count <= wanted:
            return np.arange(count)
        basis, means = self._means
        guess = means @ (vector @ basis)
        if near is not None:
            guess = np.maximum(guess, near)
        guess += COARSE_LEXICAL * covered
        return np.sort(np.argpartition(-guess, wanted)[:wanted])

    def _reduced(self) -> tuple[Array, Array]:
        """The directions in which the cards' mean vectors differ most, shape (384, COARSE), and the means in them,
        shape (n, COARSE)."""
        count = len(self._first) - 1
        means = np.empty((count, DIMENSIONS), np.float32)
        for start in range(0, count, BLOCK):
            first = self._first[start : start + BLOCK + 1]
            rows = self._rows[first[0] : first[-1]].astype(np.float32)
            means[start : start + BLOCK] = np.add.reduceat(rows, first[:-1] - first[0])
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        basis = np.ascontiguousarray(np.linalg.eigh(means.T @ means)[1][:, -COARSE:])
        return basis, means @ basis
