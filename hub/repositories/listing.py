"""Paged listings of repositories: search, filter, sort.

A query is a set of terms that a repository must have. If one of them is rare, its repositories are looked up and
sorted. If all are common, repositories are scanned in the requested order until the page is full; if that takes too
long, because the terms are rarely found together, the repositories with all terms are looked up after all.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import prod
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    UnaryExpression,
    func,
    intersect,
    literal,
    select,
    tuple_,
)

from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.names import folded
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import repositories, terms
from kcard.hub.records.utc import utc
from kcard.hub.refusals import Invalid
from kcard.hub.repositories import rows
from kcard.hub.repositories.readable import readable
from kcard.hub.repositories.terms import AUTHOR, LONGEST, TAG, WORD, words
from kcard.hub.repositories.values import Repository, Type

__all__ = ["LIMIT", "MOST", "SORTS", "ListQuery", "Listing"]

Condition: TypeAlias = ColumnElement[bool]
SORTS = {
    "lastModified": repositories.c.modified,
    "createdAt": repositories.c.created,
    "downloads": repositories.c.downloads,
    "likes": repositories.c.likes,
    "trendingScore": repositories.c.likes,
}
LIMIT, MOST = 100, 1000
LARGEST_PAGE = 1 << 20  # characters of the tags and metadata of a page
SOME, FEW = 100, 10  # rows that are read at a time, without and with metadata
MOST_TERMS = 20
# Rows of a term are counted up to here; with more, scanning is faster whatever the exact number.
COUNTED = 10_000
SCANNED = 5_000  # repositories before the scan is given up
LARGEST = 2**31 - 1  # of an integer column
LAST = "\U0010ffff"


@dataclass(frozen=True)
class ListQuery:
    """A query for repositories of a type.

    search      words; each must be a prefix of a word in the full name or a tag
    author      namespace, in any case
    filters     required tags, in any case
    sort        a key of SORTS, then id; trendingScore means likes
    direction   -1 descending, 1 ascending
    limit       page size, at most MOST
    cursor      start of the page, from `Listing.page` or `Listing.cursor`
    card        whether to read the metadata of README.md
    """

    type: Type
    search: str | None = None
    author: str | None = None
    filters: Sequence[str] = ()
    sort: str = "lastModified"
    direction: int = -1
    limit: int = LIMIT
    cursor: str | None = None
    gated: bool | None = None
    pipeline_tag: str | None = None
    card: bool = False

    def __post_init__(self) -> None:
        if self.sort not in SORTS:
            raise Invalid(f"unknown sort {self.sort[:50]!r}: use {', '.join(SORTS)}")
        if self.direction not in (-1, 1):
            raise Invalid(f"invalid direction {self.direction}: use -1 (descending) or 1 (ascending)")
        if not 1 <= self.limit <= MOST:
            raise Invalid(f"invalid limit {self.limit}: use 1 to {MOST}")
        if len(self.terms) > MOST_TERMS:
            raise Invalid(f"too many words and tags ({len(self.terms)}): the limit is {MOST_TERMS}")

    @property
    def terms(self) -> list[Condition]:
        """A condition on rows of `terms` for each term of the query."""
        tags = [*self.filters, *([self.pipeline_tag] if self.pipeline_tag else [])]
        exact = [(TAG, tag.lower()[:LONGEST]) for tag in dict.fromkeys(tags)]
        if self.author is not None:
            exact.append((AUTHOR, folded(self.author)))
        found: list[Condition] = [(terms.c.kind == kind) & (terms.c.term == term) for kind, term in exact]
        for word in sorted(words(self.search or "")):
            found.append((terms.c.kind == WORD) & terms.c.term.between(word, word + LAST))
        return found


class Listing:
    """Pages of repositories."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, query: ListQuery, identity: Identity | None) -> tuple[list[Repository], str | None]:
        """A page of the repositories that the identity may read, and the cursor of the next page; None: the last page.

        A page ends early if its tags and metadata exceed LARGEST_PAGE, but has at least one repository. Changes between
        two pages neither repeat nor omit other repositories. Raises Invalid for a cursor of another query.
        """
        if query.search is not None and query.search.strip() and not words(query.search):
            return [], None
        with self._database.read() as connection:
            ids = _ids(connection, query, identity)
            page = list(_up_to(LARGEST_PAGE, _rows(connection, ids[: query.limit], query.card)))
        return page, self.cursor(query, page[-1]) if len(ids) > len(page) else None

    def cursor(self, query: ListQuery, last: Repository) -> str:
        """The cursor of the page after this repository."""
        return _cursor(query, last)


def _rows(connection: Connection, ids: Sequence[int], card: bool) -> Iterator[Row[Any]]:
    """The rows of repositories in this order, a few at a time, since one may have half a megabyte of metadata."""
    columns = [
        literal("{}").label("card") if c.name == "card" and not card else c for c in rows.REPOSITORY_COLUMNS
    ]
    some = FEW if card else SOME
    for first in range(0, len(ids), some):
        here = select(*columns).where(repositories.c.id.in_(ids[first : first + some]))
        found = {row.id: row for row in connection.execute(here)}
        yield from (found[id_] for id_ in ids[first : first + some])


def _up_to(largest: int, found: Iterable[Row[Any]]) -> Iterator[Repository]:
    """The repositories until their texts have `largest` characters, at least one."""
    size = 0
    for row in found:
        size += len(row.card) + len(row.tags)
        if size > largest and size > len(row.card) + len(row.tags):
            return
        yield rows.repository(row)


def _ids(connection: Connection, query: ListQuery, identity: Identity | None) -> list[int]:
    """The ids of the page in order, and one more if there is a next page."""
    rest = [repositories.c.type == query.type, *_after(query)]
    order = [column.desc() if query.direction == -1 else column.asc() for column in _sorting(query)]
    conditions = [*rest, readable(identity)]
    if query.gated is not None:
        conditions.append((repositories.c.gated != "no") == literal(query.gated))

    def ids(*more: Condition) -> list[int]:
        page = select(repositories.c.id).where(*conditions, *more).order_by(*order)
        return list(connection.scalars(page.limit(query.limit + 1)))

    sought = query.terms
    if not sought:
        return ids()
    if (rarest := _rarest(connection, sought, query.limit)) is not None:
        others = sought[:rarest] + sought[rarest + 1 :]
        return ids(_among(sought[rarest]), *(_has(term) for term in others))
    edge = _edge(connection, query, rest, order)
    found = ids(*edge, *(_has(term) for term in sought))
    # Common terms may be rare together: then the scan would read all repositories.
    return found if not edge or len(found) > query.limit else ids(_among(*sought))


def _sorting(query: ListQuery) -> tuple[ColumnElement[Any], ColumnElement[int]]:
    return SORTS[query.sort], repositories.c.id


def _edge(
    connection: Connection,
    query: ListQuery,
    rest: Sequence[Condition],
    order: Sequence[UnaryExpression[Any]],
) -> list[Condition]:
    """How far to scan before giving up; empty if there are fewer repositories than that."""
    end = select(*_sorting(query)).where(*rest).order_by(*order).offset(SCANNED).limit(1)
    found = connection.execute(end).one_or_none()
    return [] if found is None else [_beyond(query, found[0], found[1], back=True)]


def _rarest(connection: Connection, sought: Sequence[Condition], limit: int) -> int | None:
    """The term to look up; None if scanning reads fewer rows."""
    counts = [
        select(func.count()).select_from(select(terms.c.kind).where(t).limit(COUNTED).subquery())
        for t in sought
    ]
    newest = select(func.coalesce(func.max(repositories.c.id), 1))
    total, *found = connection.execute(select(*(c.scalar_subquery() for c in (newest, *counts)))).one()
    place = min(range(len(found)), key=found.__getitem__)
    scanned = (limit + 1) * prod(total / max(count, 1) for count in found)
    return place if found[place] < scanned else None


def _among(*sought: Condition) -> Condition:
    found = [select(terms.c.repository_id).where(term) for term in sought]
    return repositories.c.id.in_(found[0] if len(found) == 1 else intersect(*found))


def _has(term: Condition) -> Condition:
    # OFFSET 0 prevents PostgreSQL from joining with all rows of the term.
    here = select(terms.c.kind).where(terms.c.repository_id == repositories.c.id, term)
    return here.correlate(repositories).offset(0).exists()


def _cursor(query: ListQuery, last: Repository) -> str:
    value = getattr(last, SORTS[query.sort].name)
    said = [query.sort, query.direction, value.isoformat() if isinstance(value, datetime) else value, last.id]
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")


def _after(query: ListQuery) -> list[Condition]:
    """What comes after the cursor, if any."""
    if query.cursor is None:
        return []
    try:
        text = query.cursor
        sort, direction, value, id_ = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        right = (sort, direction) == (query.sort, query.direction) and isinstance(id_, int)
        place = utc(datetime.fromisoformat(value)) if isinstance(value, str) else value
        fits = all(abs(number) <= LARGEST for number in (id_, place) if isinstance(number, int))
        if not right or not fits or not isinstance(place, SORTS[query.sort].type.python_type):
            raise ValueError(text)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Invalid("invalid cursor for this query: start with the first page") from error
    return [_beyond(query, place, id_)]


def _beyond(query: ListQuery, value: Any, id_: int, *, back: bool = False) -> Condition:
    """What comes after a repository in the query's order, or before it with `back`."""
    column, key = _sorting(query)
    here, there = tuple_(column, key), tuple_(literal(value, column.type), literal(id_))
    return here < there if (query.direction == -1) != back else here > there
