"""The BM25 gate (Thrust, section 4): a question is known where it shares its words with those of the sample."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.gates.base import GateState, Resources, parse_settings
from kcard.gates.records import Query, Record
from kcard.index import Index
from kcard.interfaces import Array
from kcard.text import words

__all__ = ["BM25", "BM25Settings"]


FOLDS = 20


@dataclass(frozen=True)
class BM25Settings:
    """percentile: of the sample's scores, each without itself, in [0, 100]; it is the threshold."""

    percentile: float = 50

    def __post_init__(self) -> None:
        if not 0 <= self.percentile <= 100:
            raise ValueError(f"percentile is {self.percentile}, expected a number from 0 to 100")


@dataclass(frozen=True)
class BM25:
    """A fitted gate: the score is the mean BM25 relevance of the question to every question of the sample.

    That is a sum over the question's words, so a weight a word is kept, and no question of the sample. A question
    of the sample is much nearer to the sample than others are, since it is in it; so the percentile is that of
    scores by parts of the sample that the question does not belong to, and about as many other questions seek.
    """

    settings: Mapping[str, Any]
    threshold: float
    weights: Mapping[str, float]
    kind: str = "bm25"

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> "BM25":
        del resources
        options = parse_settings(BM25Settings, settings, "bm25")
        if not records:
            raise UsageError("gate bm25: no records to fit it on: give about 200")
        questions = [record.question for record in records]
        index = Index.build(questions)
        vocabulary = sorted({word for question in questions for word in words(question)})
        weights = {word: _mean_relevance(index, word, len(questions)) for word in vocabulary}
        return cls(
            asdict(options), float(np.quantile(_held_out(questions), options.percentile / 100)), weights
        )

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> "BM25":
        del resources
        vocabulary, numbers = state.values["words"], state.arrays["weights"].tolist()
        return cls(
            asdict(parse_settings(BM25Settings, settings, "bm25")),
            threshold,
            dict(zip(vocabulary, numbers, strict=True)),
        )

    def state(self) -> GateState:
        return GateState(
            {"weights": np.array([*self.weights.values()], dtype=np.float64)}, {"words": [*self.weights]}
        )

    def scores(self, queries: Sequence[Query]) -> Array:
        return np.array([_score(self.weights, query.question) for query in queries], dtype=np.float32)


def _held_out(questions: Sequence[str]) -> list[float]:
    """The mean relevance of each question to the others; of more than FOLDS, to those of the other folds.

    That of the only question is 0.
    """
    if len(questions) == 1:
        return [0.0]
    relevances = [0.0] * len(questions)
    for first in range(min(FOLDS, len(questions))):
        others = Index.build(question for i, question in enumerate(questions) if i % FOLDS != first)
        for i in range(first, len(questions), FOLDS):
            scores = others.scores(questions[i])
            relevances[i] = float(scores.mean()) if len(scores) else 0.0
    return relevances


def _mean_relevance(index: Index, word: str, rows: int) -> float:
    return sum(score for _, score in index.search(word, rows)) / rows


def _score(weights: Mapping[str, float], question: str) -> float:
    """A word that comes twice counts once, as in the index. In single precision, like the scores."""
    score = sum(weights.get(word, 0.0) for word in sorted(set(words(question))))
    return float(np.float32(score))
