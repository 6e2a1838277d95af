"""The facets and sort keys of all repositories as arrays, so that counting 100,000 takes a few milliseconds.

Each process has its own. The search clock tells what changed since it was read: only those rows are read again.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from kcard.hub.records.repository_tables import repositories
from kcard.hub.records.search_tables import search, search_clock
from kcard.hub.records.utc import utc
from kcard.hub.repositories.rows import PUBLIC

__all__ = ["FACETS", "Array", "SearchIndex", "Snapshot"]

Array: TypeAlias = NDArray[Any]
FACETS = ("domain", "base", "kind", "language", "licence")
TYPES = ("model", "dataset")
COLUMNS = (
    repositories.c.id,
    repositories.c.type,
    repositories.c.visibility,
    repositories.c.namespace_id,
    repositories.c.modified,
    repositories.c.downloads,
    search.c.verified,
    search.c.factuality,
    *(search.c[name] for name in FACETS),
)
KINDS = (np.int64, np.int8, np.bool_, np.int32, np.float64, np.int64, np.bool_, np.float64, *[np.int32] * 5)


@dataclass(frozen=True)
class Snapshot:
    """One entry a repository in each array, by ascending id.

    changed, removed  the search clock when it was read
    factuality        NaN: not measured
    codes             of each facet: the place of its value in `values`
    """

    changed: int
    removed: int
    columns: tuple[Array, ...]
    values: Mapping[str, Sequence[str]]

    @property
    def ids(self) -> Array:
        return self.columns[0]

    @property
    def public(self) -> Array:
        return self.columns[2]

    @property
    def namespaces(self) -> Array:
        return self.columns[3]

    @property
    def verified(self) -> Array:
        return self.columns[6]

    @property
    def factuality(self) -> Array:
        return self.columns[7]

    def of_type(self, type_: str) -> Array:
        """Whether each repository is of the type."""
        found: Array = self.columns[1] == TYPES.index(type_)
        return found

    def codes(self, facet: str) -> Array:
        return self.columns[8 + FACETS.index(facet)]

    def having(self, ids: Sequence[int] | Array) -> Array:
        """Whether each repository is one of these."""
        found: Array = np.zeros(len(self.ids), dtype=np.bool_)
        wanted = np.asarray(ids, dtype=np.int64)
        places = np.searchsorted(self.ids, wanted)
        inside = places < len(self.ids)
        places, wanted = places[inside], wanted[inside]
        found[places[self.ids[places] == wanted]] = True
        return found

    @cached_property
    def by_date(self) -> Array:
        """The places of all repositories, the last changed first."""
        return self._ordered(self.columns[4])

    @cached_property
    def by_downloads(self) -> Array:
        return self._ordered(self.columns[5])

    @cached_property
    def by_factuality(self) -> Array:
        """Verified ones come first, unmeasured ones last."""
        return self._ordered(np.nan_to_num(self.factuality, nan=-1.0) + 2 * self.verified)

    def _ordered(self, key: Array) -> Array:
        order: Array = np.lexsort((-self.ids, -key))
        return order


class SearchIndex:
    """The current snapshot. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: dict[str, dict[str, int]] = {facet: {} for facet in FACETS}
        self._snapshot = Snapshot(-1, -1, _arrays([]), {})

    def at(self, connection: Connection) -> Snapshot:
        """The snapshot with all changes that the connection sees, and perhaps later ones."""
        clock = connection.execute(select(search_clock.c.changed, search_clock.c.removed)).tuples().one()
        found = self._snapshot
        if not _is_behind(found, *clock):
            return found
        with self._lock:
            found = self._snapshot
            if _is_behind(found, *clock):
                self._snapshot = found = self._read(connection, found, *clock)
            return found

    def _read(self, connection: Connection, last: Snapshot, changed: int, removed: int) -> Snapshot:
        query = select(*COLUMNS).join_from(repositories, search).where(search.c.changed > last.changed)
        fresh = _arrays([self._coded(row) for row in connection.execute(query)])
        keep = ~np.isin(last.ids, fresh[0])
        if removed != last.removed and len(last.ids):
            keep &= np.isin(last.ids, np.asarray(connection.scalars(select(search.c.repository_id)).all()))
        columns = [np.concatenate([old[keep], new]) for old, new in zip(last.columns, fresh, strict=True)]
        order = np.argsort(columns[0])
        values = {facet: tuple(codes) for facet, codes in self._codes.items()}
        return Snapshot(changed, removed, tuple(column[order] for column in columns), values)

    def _coded(self, row: Any) -> tuple[Any, ...]:
        id_, type_, visibility, namespace, modified, downloads, verified, factuality, *facets = row
        coded = [
            self._codes[facet].setdefault(value, len(self._codes[facet]))
            for facet, value in zip(FACETS, facets, strict=True)
        ]
        measured = np.nan if factuality is None else factuality
        at = utc(modified).timestamp()
        return (
            id_,
            TYPES.index(type_),
            visibility == PUBLIC,
            namespace,
            at,
            downloads,
            verified,
            measured,
            *coded,
        )


def _is_behind(snapshot: Snapshot, changed: int, removed: int) -> bool:
    # A reader that began earlier may see an older clock than the snapshot's.
    return snapshot.changed < changed or snapshot.removed < removed


def _arrays(rows: Sequence[tuple[Any, ...]]) -> tuple[Array, ...]:
    """An array for each column."""
    columns = zip(*rows, strict=True) if rows else [()] * len(KINDS)
    return tuple(np.asarray(column, kind) for column, kind in zip(columns, KINDS, strict=True))
