"""What a gate is: it decides whether a question needs cards. Gates: always, never, by chance, calibrated.

A kind is the class of its fitted gates: `fit` makes one from records, `restore` one from its `state`. It is
registered under the entry-point group `kcard.gate_kinds`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from kcard import system
from kcard.errors import UsageError
from kcard.gates.features import Representation
from kcard.gates.records import Query, Record
from kcard.interfaces import LLM, Array, Gate
from kcard.io import build
from kcard.types import Decision, Example, derive_seed

__all__ = [
    "GROUP",
    "THRESHOLD",
    "Always",
    "Calibrated",
    "Fitted",
    "GateState",
    "Kind",
    "LeavesOneOut",
    "LeftOut",
    "Never",
    "Probabilistic",
    "QuestionGate",
    "RandomShare",
    "RandomShareSettings",
    "Resources",
    "decide",
    "find",
    "names",
    "parse_settings",
]


# The one comparison: a gate's score against a threshold.

THRESHOLD = 0.5


def decide(gate: Gate, name: str, questions: Sequence[str], threshold: float = THRESHOLD) -> list[Decision]:
    """Knowledge is sought where the score is below the threshold (Thrust, section 2.3)."""
    scores = (float(score) for score in gate.knows(questions))
    return [Decision(name, round(score, 6), fired=score < threshold) for score in scores]


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
class QuestionGate:
    """A fitted gate as one that `kcard.interfaces.Gate` describes, asked with the text of questions alone."""

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
    return system.names(GROUP)


def find(name: str) -> Kind:
    """The kind of that name; UsageError lists the ones there are."""
    kind: Kind = system.load(GROUP, name)
    return kind


def parse_settings(cls: type[T], settings: Mapping[str, Any], kind: str) -> T:
    """The settings as an instance of the kind's own dataclass; UsageError names what is unknown or of a wrong type."""
    try:
        return build(cls, dict(settings))
    except (TypeError, ValueError) as error:
        field_names = ", ".join(field.name for field in fields(cls))  # type: ignore[arg-type] # a dataclass, by contract
        raise UsageError(f"gate {kind}: {error} (its settings: {field_names})") from error


# The two gates that need no question: always ask the cards, never ask them (Thrust, section 4, baselines).


@dataclass(frozen=True)
class Always:
    """Every question goes to the cards: score 0, as if the LLM knew nothing."""

    llm: LLM
    examples: Sequence[Example] = ()

    def knows(self, questions: Sequence[str]) -> Array:
        return np.zeros(len(questions), dtype=np.float32)


@dataclass(frozen=True)
class Never:
    """No question goes to the cards: score 1, as if the LLM knew everything."""

    llm: LLM
    examples: Sequence[Example] = ()

    def knows(self, questions: Sequence[str]) -> Array:
        return np.ones(len(questions), dtype=np.float32)


# A share of the questions, drawn at random, seeks knowledge (Thrust, section 4): the bar for every gate.

BITS = 63


@dataclass(frozen=True)
class RandomShareSettings:
    """share: of the questions that seek knowledge, in [0, 1]. seed: which ones."""

    share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is {self.share}, expected a number from 0 to 1")


@dataclass(frozen=True)
class RandomShare:
    """Scores spread evenly over [0, 1), each by the seed and its question alone; the share is the threshold.

    It learns nothing from records, and is fitted on any.
    """

    settings: Mapping[str, Any]
    threshold: float
    kind: str = "random"

    @classmethod
    def fit(
        cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources
    ) -> "RandomShare":
        del records, resources
        options = parse_settings(RandomShareSettings, settings, "random")
        return cls(asdict(options), options.share)

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> "RandomShare":
        del state, resources
        return cls(asdict(parse_settings(RandomShareSettings, settings, "random")), threshold)

    def state(self) -> GateState:
        return GateState({}, {})

    def scores(self, queries: Sequence[Query]) -> Array:
        seed = self.settings["seed"]
        drawn = [derive_seed(seed, query.question) / 2**BITS for query in queries]
        # Rounded down, so that no score is 1 and a share of 1 seeks always.
        return np.minimum(np.array(drawn, dtype=np.float32), np.float32(1 - 2**-24))


# A fitted gate with another threshold than its own: the one that `kcard calibrate` chose on the user's records.

KIND = "calibrated"


@dataclass(frozen=True)
class Calibrated:
    """`gate` scores; `threshold` decides. See kcard.gates.base.Fitted."""

    gate: Fitted
    threshold: float
    kind: ClassVar[str] = KIND

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> NoReturn:
        """Never: a threshold is chosen by comparing (kcard.evaluation.gates.calibration)."""
        del records, settings, resources
        raise UsageError(f"gate {KIND} is made by kcard calibrate --records RECORDS, not fitted")

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> "Calibrated":
        inner = GateState(state.arrays, state.values["values"])
        own_settings = {key: value for key, value in settings.items() if key != "gate"}
        gate = find(settings["gate"]).restore(own_settings, state.values["threshold"], inner, resources)
        return cls(gate, threshold)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Those of the gate, and its kind as "gate"."""
        return {**self.gate.settings, "gate": self.gate.kind}

    def scores(self, queries: Sequence[Query]) -> Array:
        return self.gate.scores(queries)

    def state(self) -> GateState:
        arrays, values = self.gate.state()
        return GateState(arrays, {"threshold": self.gate.threshold, "values": dict(values)})
