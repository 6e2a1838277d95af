"""A share of the questions, drawn at random, seeks knowledge (Thrust, section 4): the bar for every gate."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kcard.gates.kinds import GateState, Resources, typed
from kcard.gates.query import Query
from kcard.gates.record import Record
from kcard.protocols import Array
from kcard.sampling import derive_seed

__all__ = ["RandomShare", "RandomShareSettings"]

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
        given = typed(RandomShareSettings, settings, "random")
        return cls(asdict(given), given.share)

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> "RandomShare":
        del state, resources
        return cls(asdict(typed(RandomShareSettings, settings, "random")), threshold)

    def state(self) -> GateState:
        return GateState({}, {})

    def scores(self, queries: Sequence[Query]) -> Array:
        seed = self.settings["seed"]
        drawn = [derive_seed(seed, query.question) / 2**BITS for query in queries]
        # Rounded down, so that no score is 1 and a share of 1 seeks always.
        return np.minimum(np.array(drawn, dtype=np.float32), np.float32(1 - 2**-24))
