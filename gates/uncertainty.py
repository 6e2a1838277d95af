"""Uncertainty gates score how sure the LLM was of the tokens of a short draft without knowledge.

Later comparisons found such simple scores as good as costlier gates (AdaRAGUE, 2025).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from kcard.errors import UsageError
from kcard.gates.base import FittedGate, GateState, Resources, Settings, parse_settings
from kcard.gates.popularity import best_threshold
from kcard.gates.records import Query, Record
from kcard.interfaces import LLM, Array, Gate, replies
from kcard.types import Example, Question

KIND = "uncertainty"
Measure = Literal["margin", "entropy"]
MAX_ENTROPY = 20.0  # nats: no vocabulary has so many tokens


@dataclass(frozen=True)
class Uncertainty(Gate):
    """The score is the mean over a draft's tokens of P(most likely token) - P(second), in [0, 1]."""

    llm: LLM
    examples: Sequence[Example] = ()

    def knows(self, questions: Sequence[Question]) -> Array:
        return draft_scores(self.llm, questions, "margin", tuple(self.examples))


@dataclass(frozen=True)
class UncertaintySettings:
    """measure: margin (see Uncertainty), or entropy: the negative mean over the tokens, in nats."""

    measure: Measure = "margin"


@dataclass(frozen=True, eq=False)
class CalibratedUncertainty(FittedGate):
    """An uncertainty gate with the threshold that is best on the records."""

    options: UncertaintySettings
    threshold: float
    llm: LLM | None
    kind = KIND

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Draft an answer to each record. Raises UsageError without records, LLM or log-probabilities."""
        if not records:
            raise UsageError(f"gate {KIND}: there are no records to fit it on: add some")
        started = cls(parse_settings(UncertaintySettings, settings, KIND), 0.0, resources.llm)
        scores = started.scores([record.query for record in records])
        without = [record.correct_without for record in records]
        threshold = best_threshold(scores, without, [record.correct_with for record in records])
        return replace(started, threshold=threshold)

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        del state
        return cls(parse_settings(UncertaintySettings, settings, KIND), threshold, resources.llm)

    def scores(self, queries: Sequence[Query]) -> Array:
        if self.llm is None:
            raise UsageError(f"gate {KIND} needs a draft by an LLM, and none is given: choose one with --llm")
        return draft_scores(self.llm, [query.to_ask for query in queries], self.options.measure)


def draft_scores(
    llm: LLM, questions: Sequence[Question], measure: Measure, examples: tuple[Example, ...] = ()
) -> Array:
    """Draft an answer to each question and return the drafts' scores, shape (n,).

    An empty draft has the lowest score. Raises UsageError, which names the LLM, if it gives no log-probabilities.
    """
    requests = [question.request("answer", examples=examples, draft=True) for question in questions]
    scores = []
    for reply in replies(llm, requests):
        if reply.tokens is None:
            name = llm.announcement or type(llm).__name__
            raise UsageError(
                f"gate {KIND} needs log-probabilities, and this LLM gives none: {name}; choose another gate or LLM"
            )
        if measure == "margin":
            lowest, values = 0.0, [token.margin for token in reply.tokens]
        else:
            lowest, values = -MAX_ENTROPY, [-token.entropy for token in reply.tokens]
        if values:
            scores.append(float(np.mean(values)))
        else:
            scores.append(lowest)
    return np.array(scores, dtype=np.float32)
