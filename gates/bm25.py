"""The BM25 gate (Thrust, section 4): a question counts as known if it shares its words with those of a sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, Resources, Settings, parse_settings
from kcard.gates.records import Query, Record
from kcard.index import Index
from kcard.interfaces import Array
from kcard.text import words

MAX_FOLDS = 20


@dataclass(frozen=True)
class BM25Settings:
    """percentile: of the sample's held-out scores, in [0, 100]; it is the threshold."""

    percentile: float = 50

    def __post_init__(self) -> None:
        if not 0 <= self.percentile <= 100:
            raise ValueError(f"percentile is {self.percentile}, expected a number from 0 to 100")


@dataclass(frozen=True)
class BM25(FittedGate):
    """The score is the mean BM25 relevance of the question to all questions of the sample.

    It is a sum over the question's words, so the gate stores one weight per word and no question of the sample. A
    question of the sample is much nearer to the sample than others are, so the percentile is taken of scores against
    parts of the sample that don't contain the question; about the same share of other questions then uses cards.
    """

    options: BM25Settings
    threshold: float
    weights: Mapping[str, float]
    kind = "bm25"

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        del resources
        options = parse_settings(BM25Settings, settings, cls.kind)
        if not records:
            raise UsageError("gate bm25: no records to fit it on: give about 200")
        questions = [record.question for record in records]
        index = Index.build(questions)
        count = len(questions)
        vocabulary: set[str] = set()
        for question in questions:
            vocabulary.update(words(question))
        weights = {}
        for word in sorted(vocabulary):
            weights[word] = sum(score for _, score in index.search(word, count)) / count
        threshold = float(np.quantile(_held_out(questions), options.percentile / 100))
        return cls(options, threshold, weights)

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        del resources
        weights = dict(zip(state.values["words"], state.arrays["weights"].tolist(), strict=True))
        return cls(parse_settings(BM25Settings, settings, cls.kind), threshold, weights)

    def state(self) -> GateState:
        weights = np.array([*self.weights.values()], dtype=np.float64)
        return GateState({"weights": weights}, {"words": [*self.weights]})

    def scores(self, queries: Sequence[Query]) -> Array:
        scores = []
        for query in queries:  # a word that occurs twice counts once, as in the index
            score = sum(self.weights.get(word, 0.0) for word in sorted(set(words(query.question))))
            scores.append(float(np.float32(score)))
        return np.array(scores, dtype=np.float32)


def _held_out(questions: Sequence[str]) -> list[float]:
    """Return the mean relevance of each question to the others; with more than MAX_FOLDS, to those of the other folds.

    That of an only question is 0.
    """
    if len(questions) == 1:
        return [0.0]
    relevances = [0.0] * len(questions)
    for first in range(min(MAX_FOLDS, len(questions))):
        rest = list(questions)
        del rest[first::MAX_FOLDS]
        others = Index.build(rest)
        for i in range(first, len(questions), MAX_FOLDS):
            scores = others.scores(questions[i])
            if len(scores):
                relevances[i] = float(scores.mean())
    return relevances
