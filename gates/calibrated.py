"""A fitted gate with another threshold than its own: the one that `kcard calibrate` chose on the user's records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from kcard.errors import UsageError
from kcard.gates.kinds import Fitted, GateState, Resources, find
from kcard.gates.query import Query
from kcard.gates.record import Record
from kcard.protocols import Array

__all__ = ["Calibrated"]

KIND = "calibrated"


@dataclass(frozen=True)
class Calibrated:
    """`gate` scores; `threshold` decides. See kcard.gates.kinds.Fitted."""

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
        given = {key: value for key, value in settings.items() if key != "gate"}
        gate = find(settings["gate"]).restore(given, state.values["threshold"], inner, resources)
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
