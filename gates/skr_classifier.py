"""SKR's classifier: a head over a sentence encoder tells D+ from D- (SKR, section 3.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from kcard.gates.kinds import GateState, Resources, typed
from kcard.gates.logistic import Head, calibrated
from kcard.gates.query import Query
from kcard.gates.record import Record
from kcard.gates.representation import Representation, bind, find, finite
from kcard.gates.skr import sorted_out
from kcard.protocols import Array

__all__ = ["Classifier", "ClassifierSettings"]

KIND = "skr-classifier"


@dataclass(frozen=True)
class ClassifierSettings:
    """encoder: see kcard.gates.representation; it stays as it is, only the head is trained."""

    encoder: str = "minilm"
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Classifier:
    """The score is the calibrated probability that a question is of D+; the threshold is 0.5."""

    representation: Representation
    head: Head
    seed: int
    kind: ClassVar[str] = KIND
    threshold: ClassVar[float] = 0.5

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> Self:
        """Records wrong both ways are left out. Raises UsageError where D+ or D- is empty."""
        given = typed(ClassifierSettings, settings, KIND)
        held, known = sorted_out(records, KIND)
        representation = resources.representation or find(given.encoder)
        vectors = finite(representation, [record.question for record in held])
        return cls(representation, calibrated(vectors, known, given.seed), given.seed)

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> Self:
        given = typed(ClassifierSettings, settings, KIND)
        weights, bias = state.arrays["weights"], state.arrays["bias"]
        if weights.ndim != 1 or bias.shape != (1,) or threshold != cls.threshold:
            raise ValueError("its arrays or its threshold are invalid")
        representation = bind(given.encoder, state.values["encoder_sha256"], resources.representation)
        return cls(representation, Head(weights.astype(np.float64), float(bias[0])), given.seed)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"encoder": self.representation.name, "seed": self.seed}

    def scores(self, queries: Sequence[Query]) -> Array:
        vectors = finite(self.representation, [query.question for query in queries])
        return self.head.probabilities(vectors).astype(np.float32)

    def state(self) -> GateState:
        return GateState(
            {"weights": self.head.weights, "bias": np.array([self.head.bias])},
            {"encoder_sha256": self.representation.digest},
        )
