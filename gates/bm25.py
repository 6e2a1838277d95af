"""The BM25 gate (Thrust, section 4): a question is known where it shares its words with those of the sample."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.gates.kinds import GateState, Resources, typed
from kcard.gates.query import Query
from kcard.gates.record import Record
from kcard.index import Index
from kcard.protocols import Array
from kcard.words import words

__all__ = ["BM25", "BM25Settings"]


@dataclass(frozen=True)
class BM25Settings:
    """percentile: of the sample's own scores, in [0, 100]; it is the threshold."""

    percentile: float = 50

    def __post_init__(self) -> None:
        if not 0 <= self.percentile <= 100:
            raise ValueError(f"percentile is {self.percentile}, expected a number from 0 to 100")


@dataclass(frozen=True)
class BM25:
    """A fitted gate: the score is the mean BM25 relevance of the question to every question of the sample.

    That is a sum over the question's words, so a weight a word is kept, and no question of the sample.
    """

    settings: Mapping[str, Any]
    threshold: float
    weights: Mapping[str, float]
    kind: str = "bm25"

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> "BM25":
        del resources
        given = typed(BM25Settings, settings, "bm25")
        if not records:
            raise UsageError("gate bm25: no records to fit it on: give about 200")
        questions = [record.question for record in records]
        index = Index.build(questions)
        known = sorted({word for question in questions for word in words(question)})
        weights = {word: _mean_relevance(index, word, len(questions)) for word in known}
        own = [_score(weights, question) for question in questions]
        return cls(asdict(given), float(np.quantile(own, given.percentile / 100)), weights)

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> "BM25":
        del resources
        found, numbers = state.values["words"], state.arrays["weights"].tolist()
        return cls(
            asdict(typed(BM25Settings, settings, "bm25")), threshold, dict(zip(found, numbers, strict=True))
        )

    def state(self) -> GateState:
        return GateState(
            {"weights": np.array([*self.weights.values()], dtype=np.float64)}, {"words": [*self.weights]}
        )

    def scores(self, queries: Sequence[Query]) -> Array:
        return np.array([_score(self.weights, query.question) for query in queries], dtype=np.float32)


def _mean_relevance(index: Index, word: str, rows: int) -> float:
    return sum(score for _, score in index.search(word, rows)) / rows


def _score(weights: Mapping[str, float], question: str) -> float:
    """A word that comes twice counts once, as in the index. In single precision, like the scores."""
    found = sum(weights.get(word, 0.0) for word in sorted(set(words(question))))
    return float(np.float32(found))
