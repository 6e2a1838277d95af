"""Gates that tests fit and never save."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kcard.gates.base import FittedGate, Resources, Settings
from kcard.gates.records import Query, Record
from kcard.interfaces import Array

__all__ = ["Popular", "Remembering"]


@dataclass
class UnsavedGate(FittedGate):
    """It keeps the records that it was fitted on."""

    records: tuple[Record, ...]
    options: Settings
    threshold: float = 0.0

    @property
    def settings(self) -> Settings:
        settings: Settings = self.options
        return settings

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Settings, resources: Resources) -> Self:
        del resources
        return cls(tuple(records), settings)

    @classmethod
    def restore(cls, *told: Any) -> Self:
        raise NotImplementedError


class Popular(UnsavedGate):
    """Its score is the popularity of the question, times how many records it was fitted on."""

    kind = "popular"

    def scores(self, queries: Sequence[Query]) -> Array:
        popularity = [query.popularity or 0 for query in queries]
        return len(self.records) * np.array(popularity, dtype=np.float32)


class Remembering(UnsavedGate):
    """Its score is how many records it was fitted on, or -1 for a question among them."""

    kind = "remembering"

    def scores(self, queries: Sequence[Query]) -> Array:
        known = {record.question for record in self.records}
        scores = [-1 if query.question in known else len(known) for query in queries]
        return np.array(scores, dtype=np.float32)
