"""Uncertainty: how sure the LLM was of each token of a short draft, which it writes without knowledge.

Later comparisons found such plain scores as good as costlier gates (AdaRAGUE, 2025).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from kcard.errors import UsageError
from kcard.gates.base import GateState, Resources, parse_settings
from kcard.gates.popularity import best_threshold
from kcard.gates.records import Query, Record
from kcard.interfaces import LLM, Array, replies
from kcard.types import Example, Reply, Request, TokenScores

__all__ = ["CalibratedUncertainty", "Measure", "Uncertainty", "UncertaintySettings", "draft_scores"]

KIND = "uncertainty"
Measure = Literal["margin", "entropy"]
UNSURE = 20.0  # nats: no vocabulary has so many tokens


@dataclass(frozen=True)
class Uncertainty:
    """One draft a question; the score is the mean over its tokens of P(likeliest token) - P(second), in [0, 1]."""

    llm: LLM
    examples: Sequence[Example] = ()

    def knows(self, questions: Sequence[str]) -> Array:
        return draft_scores(self.llm, questions, "margin", tuple(self.examples))


@dataclass(frozen=True)
class UncertaintySettings:
    """measure: margin (see Uncertainty), or entropy: the mean over the tokens, negative, in nats."""

    measure: Measure = "margin"


@dataclass(frozen=True, eq=False)
class CalibratedUncertainty:
    """The same with a threshold of its own: the one that would have served the records best."""

    options: UncertaintySettings
    threshold: float
    llm: LLM | None
    kind: ClassVar[str] = KIND

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> Self:
        """One draft a record. Raises UsageError for no record, no LLM, and an LLM that gives no log-probabilities."""
        if not records:
            raise UsageError(f"gate {KIND}: there are no records to fit it on: add some")
        started = cls(parse_settings(UncertaintySettings, settings, KIND), 0.0, resources.llm)
        scores = started.scores([record.query for record in records])
        without = [record.correct_without for record in records]
        threshold = best_threshold(scores, without, [record.correct_with for record in records])
        return replace(started, threshold=threshold)

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> Self:
        del state
        return cls(parse_settings(UncertaintySettings, settings, KIND), threshold, resources.llm)

    @property
    def settings(self) -> Mapping[str, Any]:
        return asdict(self.options)

    def scores(self, queries: Sequence[Query]) -> Array:
        if self.llm is None:
            raise UsageError(f"gate {KIND} needs a draft by an LLM, and none is given: choose one with --llm")
        return draft_scores(self.llm, [query.question for query in queries], self.options.measure)

    def state(self) -> GateState:
        return GateState({}, {})


def draft_scores(
    llm: LLM, questions: Sequence[str], measure: Measure, examples: tuple[Example, ...] = ()
) -> Array:
    """The score of a draft of each question, shape (n,).

    A draft of no token is as unsure as can be. Raises UsageError, naming the LLM, where it gives no log-probabilities.
    """
    requests = [Request("answer", question, (), examples, draft=True) for question in questions]
    return np.array([_score(llm, reply, measure) for reply in replies(llm, requests)], dtype=np.float32)


def _score(llm: LLM, reply: Reply, measure: Measure) -> float:
    if reply.tokens:
        return float(np.mean([_of(token, measure) for token in reply.tokens]))
    if reply.tokens is None:
        raise UsageError(
            f"gate {KIND} needs log-probabilities, and this LLM gives none: {_name(llm)}; choose another gate or LLM"
        )
    return 0.0 if measure == "margin" else -UNSURE


def _of(token: TokenScores, measure: Measure) -> float:
    return token.margin if measure == "margin" else -token.entropy


def _name(llm: LLM) -> str:
    return str(getattr(llm, "announcement", type(llm).__name__))
