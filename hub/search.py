"""Search: pages of repositories that match all words and facets of a query, and the counts of each facet."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from kcard.hub.accounts import Identity, fold_name
from kcard.hub.db.models import PUBLIC, Account, Repository, RepositoryType, SearchClock, SearchRow, Term
from kcard.hub.db.session import Database
from kcard.hub.errors import Invalid
from kcard.hub.permissions import reach_of
from kcard.hub.search_index import AUTHOR, FACETS, LONGEST, TAG, normalise_words

Order: TypeAlias = Literal["relevance", "factuality", "downloads", "date"]
ORDERS: tuple[Order, ...] = get_args(Order)
FACTUALITY = (0.5, 0.7, 0.9)
MOST_WORDS, MOST_PAGES = 20, 400
# With more matches than this, the most downloaded come first: words that so many repositories have say little.
RANKED = 3000


# Full-text search: FTS5 in SQLite, a tsvector in PostgreSQL. Each word must be the prefix of a word of the text.

# Thousands of ids are read fastest as one text.
MATCHES = {
    "sqlite": "SELECT group_concat(rowid) FROM search_text WHERE search_text MATCH :words",
    "postgresql": (
        "SELECT string_agg(repository_id::text, ',') FROM search WHERE vector @@ to_tsquery('simple', :words)"
    ),
}
# Both weigh words of the name most, then those of the domain, the description and the tags.
SCORES = {
    "sqlite": (
        "SELECT rowid, -bm25(search_text, 10.0, 5.0, 2.0, 1.0) FROM search_text "
        "WHERE search_text MATCH :words"
    ),
    "postgresql": (
        "SELECT repository_id, ts_rank('{0.1, 0.2, 0.5, 1.0}', vector, to_tsquery('simple', :words)) "
        "FROM search WHERE vector @@ to_tsquery('simple', :words)"
    ),
}


def find_matches(session: Session, words: Sequence[str]) -> NDArray[np.int64]:
    """Return the ids of the repositories that have all words, normalised by search_index.normalise_words."""
    database = session.get_bind().dialect.name
    ids: str | None = session.scalar(text(MATCHES[database]), {"words": _query(database, words)})
    return np.fromstring(ids, dtype=np.int64, sep=",") if ids else np.empty(0, np.int64)


def score_matches(session: Session, words: Sequence[str]) -> dict[int, float]:
    """Return the scores of the same repositories by id; higher is better."""
    database = session.get_bind().dialect.name
    rows = session.execute(text(SCORES[database]), {"words": _query(database, words)})
    return {id_: float(score) for id_, score in rows.tuples()}


def _query(database: str, words: Sequence[str]) -> str:
    """Return a query for the words in the database's language. Letters and digits need no escapes."""
    if database == "postgresql":
        return " & ".join(f"{word}:*" for word in words)
    return " ".join(f'"{word}"*' for word in words)


# The columns that repositories are filtered and ordered by, as arrays. Each process has its own copy; the search clock
# tells which rows have changed since it was read, so that only those are read again.

Array: TypeAlias = NDArray[Any]
TYPES = ("model", "dataset")
COLUMNS = (
    Repository.id,
    Repository.type,
    Repository.visibility,
    Repository.namespace_id,
    Repository.modified,
    Repository.downloads,
    SearchRow.verified,
    SearchRow.factuality,
    *(getattr(SearchRow, name) for name in FACETS),
)
KINDS = (np.int64, np.int8, np.bool_, np.int32, np.float64, np.int64, np.bool_, np.float64, *[np.int32] * 5)


@dataclass(frozen=True)
class Snapshot:
    """The searched columns: each array has one entry per repository, by ascending id.

    changed, removed  the search clock when it was read
    factuality        NaN: not measured
    codes             of each facet: the index of its value in `values`
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
        """Return whether each repository is of the type."""
        mask: Array = self.columns[1] == TYPES.index(type_)
        return mask

    def codes(self, facet: str) -> Array:
        return self.columns[8 + FACETS.index(facet)]

    def having(self, ids: Sequence[int] | Array) -> Array:
        """Return whether each repository has one of these ids."""
        mask: Array = np.zeros(len(self.ids), dtype=np.bool_)
        sought = np.asarray(ids, dtype=np.int64)
        places = np.searchsorted(self.ids, sought)
        inside = places < len(self.ids)
        places, sought = places[inside], sought[inside]
        mask[places[self.ids[places] == sought]] = True
        return mask

    @cached_property
    def by_date(self) -> Array:
        """The indices of all repositories, the last changed first."""
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
        self._snapshot = Snapshot(-1, -1, _make_arrays([]), {})

    def at(self, session: Session) -> Snapshot:
        """Return a snapshot with at least the changes that the session sees."""
        clock = session.execute(select(SearchClock.changed, SearchClock.removed)).tuples().one()
        snapshot = self._snapshot
        if not _is_behind(snapshot, *clock):
            return snapshot
        with self._lock:
            snapshot = self._snapshot
            if _is_behind(snapshot, *clock):
                # Read the rows that changed since the last snapshot.
                changed, removed = clock
                query = (
                    select(*COLUMNS)
                    .join_from(Repository, SearchRow)
                    .where(SearchRow.changed > snapshot.changed)
                )
                fresh = _make_arrays([self._encode(row) for row in session.execute(query)])
                keep = ~np.isin(snapshot.ids, fresh[0])
                if removed != snapshot.removed and len(snapshot.ids):
                    keep &= np.isin(
                        snapshot.ids, np.asarray(session.scalars(select(SearchRow.repository_id)).all())
                    )
                columns = [
                    np.concatenate([old[keep], new]) for old, new in zip(snapshot.columns, fresh, strict=True)
                ]
                order = np.argsort(columns[0])
                values = {facet: tuple(codes) for facet, codes in self._codes.items()}
                self._snapshot = snapshot = Snapshot(
                    changed, removed, tuple(column[order] for column in columns), values
                )
            return snapshot

    def _encode(self, row: Any) -> tuple[Any, ...]:
        id_, type_, visibility, namespace, modified, downloads, verified, factuality, *facets = row
        coded = [
            self._codes[facet].setdefault(value, len(self._codes[facet]))
            for facet, value in zip(FACETS, facets, strict=True)
        ]
        measured = np.nan if factuality is None else factuality
        at = modified.timestamp()
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


def _make_arrays(rows: Sequence[tuple[Any, ...]]) -> tuple[Array, ...]:
    """Return an array for each column."""
    columns = zip(*rows, strict=True) if rows else [()] * len(KINDS)
    return tuple(np.asarray(column, kind) for column, kind in zip(columns, KINDS, strict=True))


@dataclass(frozen=True)
class SearchQuery:
    """A query for repositories of a type.

    text        words; each must be a prefix of a word in the name, the domain, the description or a tag
    facets      the value of some of FACETS; a domain includes those below it
    author      namespace, in any case
    tags        required tags, in any case
    verified    only repositories whose factuality an audit of this hub measured
    factuality  the least verified factuality
    sort        by date instead of relevance if there is no text
    page        from 1
    """

    type: RepositoryType = "model"
    text: str = ""
    facets: Mapping[str, str] | None = None
    author: str = ""
    tags: Sequence[str] = ()
    verified: bool = False
    factuality: float | None = None
    sort: Order = "relevance"
    page: int = 1
    size: int = 25

    def __post_init__(self) -> None:
        if "\0" in "".join((self.author, *self.tags)):  # PostgreSQL can't store it in text
            raise Invalid("a tag or an author contains a NUL character")
        if self.sort not in ORDERS:
            raise Invalid(f"unknown sort {self.sort[:50]!r}: use {', '.join(ORDERS)}")
        if not 1 <= self.page <= MOST_PAGES:
            raise Invalid(f"invalid page {self.page}: use 1 to {MOST_PAGES}, or a narrower search")
        if len(self.words) + len(self.tags) > MOST_WORDS:
            raise Invalid(
                f"too many words and tags ({len(self.words) + len(self.tags)}): the limit is {MOST_WORDS}"
            )

    @property
    def words(self) -> list[str]:
        return list(dict.fromkeys(normalise_words(self.text)))


@dataclass(frozen=True)
class Counts:
    """Number of repositories per value of a facet, with the rest of the query unchanged.

    facets      by facet and value, without those that have none
    factuality  by the least factuality, one of FACTUALITY
    """

    facets: Mapping[str, Mapping[str, int]]
    verified: int
    factuality: Mapping[float, int]


@dataclass(frozen=True)
class SearchResults:
    """A page of repositories; `total` counts all pages."""

    repositories: Sequence[Repository]
    total: int
    pages: int
    counts: Counts


class RepositorySearch:
    """Search in a database."""

    def __init__(self, database: Database) -> None:
        self._database, self._index = database, SearchIndex()

    def find(self, query: SearchQuery, identity: Identity | None = None) -> SearchResults:
        """Return a page of the repositories that the identity may read."""
        with self._database.read() as session:
            snapshot = self._index.at(session)
            always = snapshot.of_type(query.type) & _readable(session, snapshot, identity)
            # Repositories with all words, the author and the tags.
            if query.text.strip():
                always &= snapshot.having(find_matches(session, query.words) if query.words else [])
            exact = [(TAG, tag.lower()[:LONGEST]) for tag in query.tags]
            if query.author:
                exact.append((AUTHOR, fold_name(query.author)))
            for kind, term in exact:
                having = select(Term.repository_id).where(Term.kind == kind, Term.term == term)
                always &= snapshot.having(session.scalars(having).all())
            # For each facet of the query, by name: the repositories that have its value.
            chosen: dict[str, Array] = {}
            for facet, value in (query.facets or {}).items():
                if value:
                    below = f"{value}/" if facet == "domain" else None
                    fits = [
                        each == value or (below is not None and each.startswith(below))
                        for each in snapshot.values[facet]
                    ]
                    chosen[facet] = np.asarray(fits, dtype=np.bool_)[snapshot.codes(facet)]
            if query.verified:
                chosen["verified"] = snapshot.verified
            if query.factuality is not None:
                chosen["factuality"] = snapshot.verified & (snapshot.factuality >= query.factuality)
            # The page.
            matching = _intersect(always, chosen.values())
            places = _sort(session, snapshot, query, matching)
            start = (query.page - 1) * query.size
            ids = [int(id_) for id_ in snapshot.ids[places[start : start + query.size]]]
            by_id = {row.id: row for row in session.scalars(select(Repository).where(Repository.id.in_(ids)))}
        total = int(np.count_nonzero(matching))
        pages = min(-(-total // query.size), MOST_PAGES)
        page = [by_id[id_] for id_ in ids if id_ in by_id]  # the snapshot may be newer than this transaction

        def without(name: str) -> Array:
            return _intersect(always, [mask for other, mask in chosen.items() if other != name])

        # How many repositories there would be with each value of a facet.
        facets = {facet: _count_values(snapshot, facet, without(facet)) for facet in FACETS}
        factuality = snapshot.factuality[without("factuality") & snapshot.verified]
        counts = Counts(
            facets,
            int(np.count_nonzero(without("verified") & snapshot.verified)),
            {least: int(np.count_nonzero(factuality >= least)) for least in FACTUALITY},
        )
        return SearchResults(page, total, pages, counts)


def _readable(session: Session, snapshot: Snapshot, identity: Identity | None) -> Array:
    """Return whether the identity may read each repository, by the rules of permissions.readable."""
    reachable = reach_of(identity)
    if reachable.everything:
        own: Array = np.ones(len(snapshot.ids), dtype=np.bool_)
    elif reachable.namespaces:
        names = select(Account.id).where(Account.folded.in_(reachable.namespaces))
        own = np.isin(snapshot.namespaces, session.scalars(names).all())
    else:
        return snapshot.public
    if reachable.only is not None:
        own &= snapshot.ids == reachable.only
    visible: Array = snapshot.public | own
    return visible


def _intersect(always: Array, chosen: Iterable[Array]) -> Array:
    matching = always.copy()
    for mask in chosen:
        matching &= mask
    return matching


def _sort(session: Session, snapshot: Snapshot, query: SearchQuery, matching: Array) -> Array:
    """Return the indices of the matching repositories in the order of the query."""
    by_relevance = query.sort == "relevance" and bool(query.words)
    if by_relevance and np.count_nonzero(matching) <= RANKED:
        places = np.flatnonzero(matching)
        scored = score_matches(session, query.words)
        score = np.asarray([scored.get(int(id_), 0.0) for id_ in snapshot.ids[places]])
        ranked: Array = places[np.lexsort((-snapshot.ids[places], -score))]
        return ranked
    order = {
        "relevance": snapshot.by_downloads if by_relevance else snapshot.by_date,
        "date": snapshot.by_date,
        "downloads": snapshot.by_downloads,
        "factuality": snapshot.by_factuality,
    }[query.sort]
    filtered: Array = order[matching[order]]
    return filtered


def _count_values(snapshot: Snapshot, facet: str, mask: Array) -> dict[str, int]:
    """Count repositories by value, most frequent first; a domain counts for those above it too."""
    values = snapshot.values[facet]
    totals: dict[str, int] = {}
    counts = np.bincount(snapshot.codes(facet)[mask], minlength=len(values))
    for value, count in zip(values, counts.tolist(), strict=True):
        if not count:
            continue
        while value:
            totals[value] = totals.get(value, 0) + count
            value = value.rpartition("/")[0] if facet == "domain" and "/" in value else ""
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))
