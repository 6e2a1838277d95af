"""The popularity gate: what few ask about, the LLM does not know (Adaptive Retrieval, section 5)."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from kcard.errors import UsageError
from kcard.gates.best_threshold import BOUND, best_threshold
from kcard.gates.kinds import GateState, Resources, typed
from kcard.gates.popularity_source import checked, find
from kcard.gates.query import Query
from kcard.gates.record import Record
from kcard.gates.relations import Relations, templates
from kcard.gates.representation import Representation, bind
from kcard.gates.representation import find as representation
from kcard.protocols import Array

__all__ = ["Popularity", "PopularitySettings"]

KIND = "popularity"
Source = Callable[[str], float | None]


@dataclass(frozen=True)
class PopularitySettings:
    """How popularity and relations are found where a question comes without them.

    source     where popularity comes from (kcard.gates.popularity_source); "": only from the records and queries
    templates  "popqa", or a JSON file of relation templates: used where no record names its relation
    floor      a question that is less like every relation than this (cosine) belongs to none
    encoder    of questions, for the nearest relation
    """

    source: str = ""
    templates: str = "popqa"
    floor: float = 0.6
    encoder: str = "minilm"


@dataclass(frozen=True, eq=False)
class Popularity:
    """The score is ln(1 + popularity) less that of the relation's threshold, so that one threshold, 0, decides.

    `thresholds`: by relation, as ln(1 + popularity); -1000 where the relation never needs knowledge, 1000 where it
    always does. `pooled`: the one over all records, for relations that were not seen. A subject that the source does
    not know has popularity 0; where there is no source either, UsageError is raised.
    """

    given: PopularitySettings
    thresholds: Mapping[str, float]
    pooled: float
    relations: Relations
    representation: Representation
    source: Source | None
    kind: ClassVar[str] = KIND
    threshold: ClassVar[float] = 0.0

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> Self:
        """Every record counts. Raises UsageError for none, and for one without popularity."""
        if not records:
            raise UsageError(f"gate {KIND}: there are no records to fit it on: add some")
        given = typed(PopularitySettings, settings, KIND)
        encoder = _encoder(given, resources)
        named = [(record.relation, record.question) for record in records if record.relation]
        relations = Relations.of(named or templates(given.templates), encoder)
        source = resources.popularity or (find(given.source) if given.source else None)
        started = cls(replace(given, encoder=encoder.name), {}, 0.0, relations, encoder, source)
        logs, found = started._measured([record.query for record in records])
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, relation in enumerate(found):
            if relation is not None:
                rows[relation].append(row)
        thresholds = {
            relation: _best(logs[rows[relation]], records, rows[relation]) for relation in sorted(rows)
        }
        return replace(started, thresholds=thresholds, pooled=_best(logs, records, range(len(records))))

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> Self:
        given = typed(PopularitySettings, settings, KIND)
        vectors, thresholds = state.arrays["relations"], state.arrays["thresholds"]
        names, fitted = tuple(state.values["relations"]), list(state.values["fitted"])
        if vectors.ndim != 2 or len(vectors) != len(names) or thresholds.shape != (len(fitted) + 1,):
            raise ValueError("its arrays don't fit each other")
        if threshold != cls.threshold or not (np.abs(thresholds) <= BOUND).all():
            raise ValueError("its thresholds are invalid")
        encoder = bind(given.encoder, state.values["encoder_sha256"], _same(given, resources))
        source = resources.popularity or (find(given.source) if given.source else None)
        *by_relation, pooled = map(float, thresholds)
        return cls(
            given,
            dict(zip(fitted, by_relation, strict=True)),
            pooled,
            Relations(names, vectors),
            encoder,
            source,
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        return asdict(self.given)

    def scores(self, queries: Sequence[Query]) -> Array:
        logs, relations = self._measured(queries)
        limits = [
            self.pooled if relation is None else self.thresholds.get(relation, self.pooled)
            for relation in relations
        ]
        found: Array = (logs - np.array(limits, dtype=np.float64)).astype(np.float32)
        return found

    def state(self) -> GateState:
        return GateState(
            {
                "relations": self.relations.vectors,
                "thresholds": np.array([*self.thresholds.values(), self.pooled], dtype=np.float64),
            },
            {
                "relations": list(self.relations.names),
                "fitted": list(self.thresholds),
                "encoder_sha256": self.representation.digest,
            },
        )

    def _measured(self, queries: Sequence[Query]) -> tuple[Any, list[str | None]]:
        """ln(1 + popularity) of each, shape (n,), and the relation of each, or None."""
        logs = np.log1p(np.array([self._popularity(query) for query in queries], dtype=np.float64))
        unnamed = [query.question for query in queries if query.relation is None]
        nearest = iter(self.relations.nearest(unnamed, self.representation, self.given.floor))
        return logs, [next(nearest) if query.relation is None else query.relation for query in queries]

    def _popularity(self, query: Query) -> float:
        if query.popularity is not None:
            return checked(query.popularity, query.question)
        if self.source is None:
            raise UsageError(
                f"gate {KIND}: the popularity of the subject of {query.question[:60]!r} is unknown: add it "
                "to every record, or give a source, such as source=file:popularity.jsonl"
            )
        found = self.source(query.question)
        return 0.0 if found is None else checked(found, query.question)


def _best(logs: Any, records: Sequence[Record], rows: Sequence[int]) -> float:
    without = [records[row].correct_without for row in rows]
    return best_threshold(logs, without, [records[row].correct_with for row in rows])


def _encoder(given: PopularitySettings, resources: Resources) -> Representation:
    return _same(given, resources) or representation(given.encoder)


def _same(given: PopularitySettings, resources: Resources) -> Representation | None:
    """What other gates embed with, if it is the one for relations: it may know the vectors already."""
    shared = resources.representation
    return shared if shared is not None and shared.name == given.encoder else None
