"""Gates decide whether a question needs cards: the base class of fitted gates, and always, never, random, calibrated.

A kind of gate is a subclass of FittedGate, registered under the entry-point group `kcard.gate_kinds`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from kcard import system
from kcard.errors import UsageError
from kcard.gates.records import Query, Record
from kcard.interfaces import LLM, Array, Gate
from kcard.io import build
from kcard.types import Example, Question, derive_seed

if TYPE_CHECKING:
    from kcard.gates.features import Representation

GROUP = "kcard.gate_kinds"
T = TypeVar("T")
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Resources:
    """What a gate may use besides its records and settings; None: it finds its own, or does without.

    llm             the LLM that would answer
    representation  replaces the one that the settings name; CachedRepresentation embeds a question once for many folds
    popularity      returns the popularity of a question's subject; None if it is unknown
    """

    llm: LLM | None = None
    representation: "Representation | None" = None
    popularity: Callable[[str], float | None] | None = None


class GateState(NamedTuple):
    """The learned state of a fitted gate: arrays, and values that JSON can hold."""

    arrays: Mapping[str, npt.NDArray[Any]]
    values: Mapping[str, Any]


class FittedGate(ABC):
    """A gate that was fitted on records. It fires if its score is below its threshold.

    kind       the name that it is registered under
    options    the dataclass of its settings, with defaults and tuned values, which JSON can hold
    threshold  finite, on the scale of the scores
    """

    kind: ClassVar[str]
    options: Any
    threshold: float

    @classmethod
    @abstractmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Fit a gate. Raises UsageError for settings or records that can't be used."""

    @classmethod
    @abstractmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        """Restore the gate that gave these. Raises UsageError if they don't match each other or the encoder."""

    @abstractmethod
    def scores(self, queries: Sequence[Query]) -> Array:
        """Score how sure it is that the LLM knows each answer, shape (n,), finite; higher = knows.

        A score does not depend on the other queries.
        """

    @property
    def settings(self) -> Settings:
        return asdict(self.options)

    def state(self) -> GateState:
        return GateState({}, {})

    def correct_without(self, queries: Sequence[Query]) -> Array | None:
        """Return P(right without cards), shape (n,), in [0, 1]; None if it isn't predicted. Raises as `scores` does."""
        del queries
        return None


class QuestionGate(Gate):
    """Adapts a fitted gate to kcard.interfaces.Gate, which gets questions alone."""

    def __init__(self, fitted: FittedGate) -> None:
        self.fitted, self.threshold = fitted, fitted.threshold

    def knows(self, questions: Sequence[Question]) -> Array:
        if not questions:
            return np.zeros(0, dtype=np.float32)
        queries = [Query(q.text, q.relation, q.popularity, origin=q) for q in questions]
        return self.fitted.scores(queries)


def names() -> list[str]:
    """Return the names of all registered kinds, sorted."""
    return system.names(GROUP)


def find(name: str) -> type[FittedGate]:
    """Return the kind of that name. Raises UsageError, which lists the registered ones."""
    kind: type[FittedGate] = system.load(GROUP, name)
    return kind


def parse_settings(cls: type[T], settings: Settings, kind: str, of: str = "gate") -> T:
    """Convert settings to the kind's dataclass. Raises UsageError, which names what is unknown or has a wrong type."""
    try:
        return build(cls, dict(settings))
    except (TypeError, ValueError) as error:
        field_names = ", ".join(field.name for field in fields(cls))  # type: ignore[arg-type] # a dataclass, by contract
        raise UsageError(f"{of} {kind}: {error} (its settings: {field_names})") from error


@dataclass(frozen=True)
class Always(Gate):
    """Uses cards for every question: score 0, as if the LLM knew nothing (Thrust, section 4, baselines)."""

    llm: LLM
    examples: Sequence[Example] = ()

    def knows(self, questions: Sequence[Question]) -> Array:
        return np.zeros(len(questions), dtype=np.float32)


@dataclass(frozen=True)
class Never(Gate):
    """Uses cards for no question: score 1, as if the LLM knew everything."""

    llm: LLM
    examples: Sequence[Example] = ()

    def knows(self, questions: Sequence[Question]) -> Array:
        return np.ones(len(questions), dtype=np.float32)


SEED_BITS = 63


@dataclass(frozen=True)
class RandomShareSettings:
    """share: of the questions that use cards, in [0, 1]. seed: decides which ones."""

    share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is {self.share}, expected a number from 0 to 1")


@dataclass(frozen=True)
class RandomShare(FittedGate):
    """A random share of the questions uses cards (Thrust, section 4): the baseline for every gate.

    Scores are uniform in [0, 1), by the seed and the question alone; the threshold is the share. It learns
    nothing from records, and can be fitted on any.
    """

    options: RandomShareSettings
    threshold: float
    kind = "random"

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        del records, resources
        options = parse_settings(RandomShareSettings, settings, cls.kind)
        return cls(options, options.share)

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        del state, resources
        return cls(parse_settings(RandomShareSettings, settings, cls.kind), threshold)

    def scores(self, queries: Sequence[Query]) -> Array:
        drawn = [derive_seed(self.options.seed, query.question) / 2**SEED_BITS for query in queries]
        # Rounded down, so that no score is 1 and the gate always fires with a share of 1.
        return np.minimum(np.array(drawn, dtype=np.float32), np.float32(1 - 2**-24))


@dataclass(frozen=True)
class Calibrated(FittedGate):
    """A fitted gate with the threshold that `kcard calibrate` chose on the user's records.

    `gate` scores; `threshold` decides.
    """

    gate: FittedGate
    threshold: float
    kind = "calibrated"

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        """Refuse: the threshold is chosen by comparison (kcard.evaluation.gates.calibration)."""
        del records, settings, resources
        raise UsageError(f"gate {cls.kind} is made by kcard calibrate --records RECORDS, not fitted")

    @classmethod
    def restore(cls, settings: Settings, threshold: float, state: GateState, resources: Resources) -> Self:
        inner = GateState(state.arrays, state.values["values"])
        own_settings = dict(settings)
        kind = own_settings.pop("gate")
        gate = find(kind).restore(own_settings, state.values["threshold"], inner, resources)
        return cls(gate, threshold)

    @property
    def settings(self) -> Settings:
        """Return the settings of the gate, with its kind as "gate"."""
        return {**self.gate.settings, "gate": self.gate.kind}

    def scores(self, queries: Sequence[Query]) -> Array:
        return self.gate.scores(queries)

    def state(self) -> GateState:
        arrays, values = self.gate.state()
        return GateState(arrays, {"threshold": self.gate.threshold, "values": dict(values)})
