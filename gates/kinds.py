"""The kinds of gates that are fitted on records, and what each may use. Kinds are found by name, a user's own too.

A kind is the class of its fitted gates: `fit` makes one from records, `restore` one from its `state`. It is
registered under the entry-point group `kcard.gate_kinds`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from kcard import plugins
from kcard.errors import UsageError
from kcard.gates.query import Query
from kcard.gates.record import Record
from kcard.gates.representation import Representation
from kcard.json_values import build
from kcard.protocols import LLM, Array

__all__ = [
    "GROUP",
    "Asked",
    "Fitted",
    "GateState",
    "Kind",
    "LeavesOneOut",
    "LeftOut",
    "Probabilistic",
    "Resources",
    "find",
    "names",
    "typed",
]

GROUP = "kcard.gate_kinds"
T = TypeVar("T")


@dataclass(frozen=True)
class Resources:
    """What a gate may use beside its records and settings; None: it finds its own, or does without.

    llm             the LLM that would answer
    representation  instead of the one that the settings name; wrapped in `Cached`, many folds embed a question once
    popularity      how well known the subject of a question is; None where that is not known
    """

    llm: LLM | None = None
    representation: Representation | None = None
    popularity: Callable[[str], float | None] | None = None


class GateState(NamedTuple):
    """What a fitted gate has learned: arrays, and values that JSON can hold."""

    arrays: Mapping[str, npt.NDArray[Any]]
    values: Mapping[str, Any]


class Fitted(Protocol):
    """A gate that was fitted on records. Knowledge is sought where its score is below its threshold."""

    @property
    def kind(self) -> str:
        """The name that it is registered under."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """What it was fitted with, defaults and tuned values included; values that JSON can hold."""
        ...

    @property
    def threshold(self) -> float:
        """Finite, on the scale of its scores."""
        ...

    def scores(self, queries: Sequence[Query]) -> Array:
        """How sure it is that the LLM knows each answer, shape (n,), finite; higher = knows.

        A score does not depend on the other queries.
        """
        ...

    def state(self) -> GateState: ...


class Kind(Protocol):
    """The class of fitted gates of one kind; these are class methods of it."""

    def fit(self, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> Fitted:
        """Fit one. Raises UsageError for settings or records that it can't be fitted with."""
        ...

    def restore(
        self, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> Fitted:
        """The gate that gave these. Raises UsageError where they don't fit each other or the encoder."""
        ...


class LeftOut(NamedTuple):
    """What gates that were fitted on all records but one made of that one, for each: the scores and thresholds, shape
    (n,), and the settings that were tuned, a list of n values each."""

    scores: Array
    thresholds: Array
    tuned: Mapping[str, Sequence[Any]]


@runtime_checkable
class LeavesOneOut(Protocol):
    """A kind that leaves each record out in turn at less cost than fitting as many gates as there are records."""

    def leave_one_out(
        self, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources
    ) -> LeftOut | None:
        """Exactly what fitting would give; None where it must be fitted after all."""
        ...


@runtime_checkable
class Probabilistic(Protocol):
    """A fitted gate that says how likely the LLM is right without cards, beside its score."""

    def correct_without(self, queries: Sequence[Query]) -> Array:
        """P(right without cards), shape (n,), in [0, 1]; raises as `scores` does."""
        ...


@dataclass(frozen=True)
class Asked:
    """A fitted gate as one that `kcard.protocols.Gate` describes, asked with the text of questions alone."""

    fitted: Fitted

    @property
    def threshold(self) -> float:
        return self.fitted.threshold

    def knows(self, questions: Sequence[str]) -> Array:
        if not questions:
            return np.zeros(0, dtype=np.float32)
        return self.fitted.scores([Query(question) for question in questions])


def names() -> list[str]:
    """Every registered kind, sorted."""
    return plugins.names(GROUP)


def find(name: str) -> Kind:
    """The kind of that name; UsageError lists the ones there are."""
    kind: Kind = plugins.load(GROUP, name)
    return kind


def typed(cls: type[T], settings: Mapping[str, Any], kind: str) -> T:
    """The settings as an instance of the kind's own dataclass; UsageError names what is unknown or of a wrong type."""
    try:
        return build(cls, dict(settings))
    except (TypeError, ValueError) as error:
        known = ", ".join(field.name for field in fields(cls))  # type: ignore[arg-type] # a dataclass, by contract
        raise UsageError(f"gate {kind}: {error} (its settings: {known})") from error
