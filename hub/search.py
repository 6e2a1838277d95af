"""Search: pages of repositories that match all words and facets of a query, and the counts of each facet."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import String, cast, func, select, text
from sqlalchemy.orm import Session

from kcard.hub.accounts import Identity
from kcard.hub.db.models import PRIVATE, PUBLIC, Repository, RepositoryType, SearchClock, SearchRow, Term
from kcard.hub.db.session import Database
from kcard.hub.errors import Invalid
from kcard.hub.permissions import readable
from kcard.hub.search_index import FACETS, exact_terms, normalise_words

Order: TypeAlias = Literal["relevance", "factuality", "downloads", "date"]
ORDERS: tuple[Order, ...] = get_args(Order)
FACTUALITY = (0.5, 0.7, 0.9)
MAX_WORDS, MAX_PAGES = 20, 400
# With more matches than this, the most downloaded come first: words that so many repositories have say little.
MAX_RANKED_MATCHES = 3000


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
    """Return the ids of the repositories that have all words, normalised by search_index.normalise_words.

    Without any word there are none.
    """
    if not words:
        return np.empty(0, np.int64)
    database = session.get_bind().dialect.name
    return _read_ids(session.scalar(text(MATCHES[database]), {"words": _query(database, words)}))


def _read_ids(joined: str | None) -> NDArray[np.int64]:
    """Return ids that were joined by commas; None: there are none."""
    return np.fromstring(joined or "", dtype=np.int64, sep=",")


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
# The columns that are searched: where they are in the database, and the type of their array.
COLUMNS = {
    "id": (Repository.id, np.int64),
    "is_model": (Repository.type == "model", np.bool_),
    "public": (Repository.visibility == PUBLIC, np.bool_),
    "gated": (Repository.gated != "no", np.bool_),
    "modified": (Repository.modified, np.float64),
    "created": (Repository.created, np.float64),
    "downloads": (Repository.downloads, np.int64),
    "likes": (Repository.likes, np.int64),
    "verified": (SearchRow.verified, np.bool_),
    "factuality": (SearchRow.factuality, np.float64),
    **{facet: (getattr(SearchRow, facet), np.int32) for facet in FACETS},
}

TIMES = ("modified", "created")  # as seconds since 1970


@dataclass(frozen=True)
class Snapshot:
    """The searched columns: each array has one entry per repository, by ascending id.

    changed, removed  the search clock when it was read
    columns           arrays by the names of COLUMNS; factuality is NaN if not measured, and a facet is the index of a
                      value in `values`
    """

    changed: int
    removed: int
    columns: Mapping[str, Array]
    values: Mapping[str, Sequence[str]]
    _orders: dict[str, Array] = field(default_factory=dict)

    def __getitem__(self, column: str) -> Array:
        return self.columns[column]

    def having(self, ids: Sequence[int] | Array) -> Array:
        """Return whether each repository has one of these ids."""
        mask: Array = np.isin(self["id"], np.asarray(ids, dtype=np.int64))
        return mask

    def descending(self, column: str) -> Array:
        """Return the indices of all repositories, the highest value of a column first, then the highest id.

        Of factuality, verified ones come first, unmeasured ones last.
        """
        if column not in self._orders:
            key = self[column]
            if column == "factuality":
                key = np.nan_to_num(key, nan=-1.0) + 2 * self["verified"]
            self._orders[column] = np.lexsort((-self["id"], -key))
        return self._orders[column]


class SearchIndex:
    """The current snapshot. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: dict[str, dict[str, int]] = {facet: {} for facet in FACETS}
        self._snapshot = Snapshot(-1, -1, self._make_columns([]), {})

    def at(self, session: Session) -> Snapshot:
        """Return a snapshot with at least the changes that the session sees."""
        clock = session.execute(select(SearchClock.changed, SearchClock.removed)).tuples().one()
        if _is_behind(self._snapshot, *clock):
            with self._lock:
                if _is_behind(self._snapshot, *clock):
                    self._snapshot = self._read_changes(session, *clock)
        return self._snapshot

    def _read_changes(self, session: Session, changed: int, removed: int) -> Snapshot:
        """Return the snapshot with the rows that changed since it was read."""
        old = self._snapshot
        columns = [column for column, _ in COLUMNS.values()]
        query = select(*columns).join_from(Repository, SearchRow).where(SearchRow.changed > old.changed)
        fresh = self._make_columns(session.execute(query).all())
        keep = ~np.isin(old["id"], fresh["id"])
        if removed != old.removed:
            there = session.scalars(select(SearchRow.repository_id)).all()
            keep &= old.having(there)
        merged = {name: np.concatenate([old[name][keep], fresh[name]]) for name in COLUMNS}
        order = np.argsort(merged["id"])
        values = {facet: tuple(codes) for facet, codes in self._codes.items()}
        return Snapshot(changed, removed, {name: array[order] for name, array in merged.items()}, values)

    def _make_columns(self, rows: Sequence[Any]) -> dict[str, Array]:
        """Return an array for each column of the rows, in which facets are coded."""
        arrays: dict[str, Array] = {}
        for place, (name, (_, kind)) in enumerate(COLUMNS.items()):
            values = [row[place] for row in rows]
            if name in TIMES:
                values = [value.timestamp() for value in values]
            elif name in FACETS:
                codes = self._codes[name]
                values = [codes.setdefault(value, len(codes)) for value in values]
            arrays[name] = np.asarray(values, dtype=kind)
        return arrays


def _is_behind(snapshot: Snapshot, changed: int, removed: int) -> bool:
    # A reader that began earlier may see an older clock than the snapshot's.
    return snapshot.changed < changed or snapshot.removed < removed


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
        if not 1 <= self.page <= MAX_PAGES:
            raise Invalid(f"invalid page {self.page}: use 1 to {MAX_PAGES}, or a narrower search")
        if len(self.words) + len(self.tags) > MAX_WORDS:
            raise Invalid(
                f"too many words and tags ({len(self.words) + len(self.tags)}): the limit is {MAX_WORDS}"
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

    def __init__(self, database: Database, index: SearchIndex) -> None:
        self._database, self._index = database, index

    def find(self, query: SearchQuery, identity: Identity | None = None) -> SearchResults:
        """Return a page of the repositories that the identity may read."""
        with self._database.read() as session:
            snapshot = self._index.at(session)
            always = select_matching(
                session, snapshot, query.type, identity, query.text, query.tags, query.author
            )
            # For each facet of the query, by name: the repositories that have its value.
            chosen: dict[str, Array] = {}
            for facet, value in (query.facets or {}).items():
                if value:
                    fits = [_is_value(facet, value, each) for each in snapshot.values[facet]]
                    chosen[facet] = np.asarray(fits, dtype=np.bool_)[snapshot[facet]]
            if query.verified:
                chosen["verified"] = snapshot["verified"]
            if query.factuality is not None:
                chosen["factuality"] = snapshot["verified"] & (snapshot["factuality"] >= query.factuality)
            # The page.
            matching = _intersect(always, chosen.values())
            places = _sort(session, snapshot, query, matching)
            start = (query.page - 1) * query.size
            ids = [int(id_) for id_ in snapshot["id"][places[start : start + query.size]]]
            by_id = {row.id: row for row in session.scalars(select(Repository).where(Repository.id.in_(ids)))}
        total = int(np.count_nonzero(matching))
        pages = min(-(-total // query.size), MAX_PAGES)
        page = [by_id[id_] for id_ in ids if id_ in by_id]  # the snapshot may be newer than this transaction

        def without(name: str) -> Array:
            return _intersect(always, [mask for other, mask in chosen.items() if other != name])

        # How many repositories there would be with each value of a facet.
        facets = {facet: _count_values(snapshot, facet, without(facet)) for facet in FACETS}
        verified = int(np.count_nonzero(without("verified") & snapshot["verified"]))
        measured = snapshot["factuality"][without("factuality") & snapshot["verified"]]
        factuality = {least: int(np.count_nonzero(measured >= least)) for least in FACTUALITY}
        return SearchResults(page, total, pages, Counts(facets, verified, factuality))


def select_matching(
    session: Session,
    snapshot: Snapshot,
    type_: RepositoryType,
    identity: Identity | None,
    text: str,
    tags: Sequence[str],
    author: str | None,
) -> Array:
    """Return whether each repository is of the type, may be read, and has all words, the tags and the author."""
    matching = snapshot["public"].copy()
    if identity is not None:
        private = select(Repository.id).where(Repository.visibility == PRIVATE, readable(identity))
        matching |= snapshot.having(session.scalars(private).all())
    matching &= snapshot["is_model"] == (type_ == "model")
    if text.strip():
        matching &= snapshot.having(find_matches(session, [*dict.fromkeys(normalise_words(text))]))
    for kind, term in exact_terms(tags, author or None):
        ids = func.aggregate_strings(cast(Term.repository_id, String), ",")
        matching &= snapshot.having(
            _read_ids(session.scalar(select(ids).where(Term.kind == kind, Term.term == term)))
        )
    return matching


def _is_value(facet: str, value: str, other: str) -> bool:
    """Return whether a repository with the value `other` has the facet's value; a domain includes those below it."""
    return other == value or (facet == "domain" and other.startswith(f"{value}/"))


def _intersect(always: Array, chosen: Iterable[Array]) -> Array:
    matching = always.copy()
    for mask in chosen:
        matching &= mask
    return matching


def _sort(session: Session, snapshot: Snapshot, query: SearchQuery, matching: Array) -> Array:
    """Return the indices of the matching repositories in the order of the query."""
    by_relevance = query.sort == "relevance" and bool(query.words)
    if by_relevance and np.count_nonzero(matching) <= MAX_RANKED_MATCHES:
        places = np.flatnonzero(matching)
        scored = score_matches(session, query.words)
        score = np.asarray([scored.get(int(id_), 0.0) for id_ in snapshot["id"][places]])
        ranked: Array = places[np.lexsort((-snapshot["id"][places], -score))]
        return ranked
    column = {"date": "modified", "relevance": "modified"}.get(query.sort, query.sort)
    if by_relevance:
        column = "downloads"
    order = snapshot.descending(column)
    filtered: Array = order[matching[order]]
    return filtered


def _count_values(snapshot: Snapshot, facet: str, mask: Array) -> dict[str, int]:
    """Count repositories by value, most frequent first; a domain counts for those above it too."""
    values = snapshot.values[facet]
    totals: dict[str, int] = {}
    counts = np.bincount(snapshot[facet][mask], minlength=len(values))
    for value, count in zip(values, counts.tolist(), strict=True):
        if not count:
            continue
        while value:
            totals[value] = totals.get(value, 0) + count
            if facet != "domain":
                break
            value = value.rpartition("/")[0]
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))
