"""Which repositories there are: searched, filtered, sorted, page by page.

A query is a set of terms that a repository must all have. Where one of them is rare, its repositories are looked up
and sorted; where all are common, the repositories are walked in the order wanted until the page is full. Where that
takes too long, since the terms are rare together, the repositories that have them all are looked up after all.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import prod
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, UnaryExpression, func, intersect, literal, select, tuple_

from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.names import folded
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import repositories, terms
from kcard.hub.records.utc import utc
from kcard.hub.refusals import Invalid
from kcard.hub.repositories import rows
from kcard.hub.repositories.reading import readable
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
MOST_TERMS = 20
# Rows of a term are counted up to here: beyond, walking is the shorter way whatever the exact number.
COUNTED = 10_000
WALKED = 5_000  # repositories, at most, before walking is given up
LARGEST = 2**31 - 1  # what a whole number of the database holds
LAST = "\U0010ffff"


@dataclass(frozen=True)
class ListQuery:
    """What is sought among the repositories of a type.

    search      words; each must begin a word of the name (its namespace included) or of a tag
    author      the namespace, whatever the case
    filters     tags, all of which it must have, whatever the case
    sort        a key of SORTS; those that are equal follow by id. There is no trend: trendingScore means likes
    direction   -1 descending, 1 ascending
    limit       size of a page, at most MOST
    cursor      where the page begins: what `Listing.page` gave with the one before
    gated       whether its files are given out on request
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

    def __post_init__(self) -> None:
        if self.sort not in SORTS:
            raise Invalid(f"sort {self.sort[:50]!r}: use {', '.join(SORTS)}")
        if self.direction not in (-1, 1):
            raise Invalid(f"direction {self.direction}: use -1 (descending) or 1")
        if not 1 <= self.limit <= MOST:
            raise Invalid(f"limit {self.limit}: use 1 to {MOST}")
        if len(self.terms) > MOST_TERMS:
            raise Invalid(f"{len(self.terms)} words and tags: at most {MOST_TERMS} are sought at once")

    @property
    def terms(self) -> list[Condition]:
        """What must hold of a row of `terms`, once for each term that is sought."""
        tags = [*self.filters, *([self.pipeline_tag] if self.pipeline_tag else [])]
        exact = [(TAG, tag.lower()[:LONGEST]) for tag in dict.fromkeys(tags)]
        if self.author is not None:
            exact.append((AUTHOR, folded(self.author)))
        found: list[Condition] = [(terms.c.kind == kind) & (terms.c.term == term) for kind, term in exact]
        for word in sorted(words(self.search or "")):
            found.append((terms.c.kind == WORD) & terms.c.term.between(word, word + LAST))
        return found


class Listing:
    """The repositories of a hub, as pages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, query: ListQuery, identity: Identity | None) -> tuple[list[Repository], str | None]:
        """The repositories of a page, of those that whoever asks may read, and the cursor of the next page.

        None: this is the last. What is added or changed between two pages makes no other repository come twice or
        be left out. Raises Invalid for a cursor of another query.
        """
        if query.search is not None and query.search.strip() and not words(query.search):
            return [], None
        with self._database.read() as connection:
            ids = _ids(connection, query, identity)
            here = select(*rows.REPOSITORY_COLUMNS).where(repositories.c.id.in_(ids[: query.limit]))
            found = {row.id: rows.repository(row) for row in connection.execute(here)}
        page = [found[id_] for id_ in ids[: query.limit]]
        return page, _cursor(query, page[-1]) if len(ids) > query.limit else None


def _ids(connection: Connection, query: ListQuery, identity: Identity | None) -> list[int]:
    """The ids of the page, in order, and one more where there is a next page."""
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
    # Common terms may be rare together: then walking on would lead through all repositories.
    return found if not edge or len(found) > query.limit else ids(_among(*sought))


def _sorting(query: ListQuery) -> tuple[ColumnElement[Any], ColumnElement[int]]:
    return SORTS[query.sort], repositories.c.id


def _edge(
    connection: Connection,
    query: ListQuery,
    rest: Sequence[Condition],
    order: Sequence[UnaryExpression[Any]],
) -> list[Condition]:
    """How far to walk before looking up is the shorter way; empty where there are no more than that."""
    end = select(*_sorting(query)).where(*rest).order_by(*order).offset(WALKED).limit(1)
    found = connection.execute(end).one_or_none()
    return [] if found is None else [_beyond(query, found[0], found[1], back=True)]


def _rarest(connection: Connection, sought: Sequence[Condition], limit: int) -> int | None:
    """Which term to look up; None where fewer rows are seen by walking until the page is full."""
    counts = [
        select(func.count()).select_from(select(terms.c.kind).where(t).limit(COUNTED).subquery())
        for t in sought
    ]
    newest = select(func.coalesce(func.max(repositories.c.id), 1))
    total, *found = connection.execute(select(*(c.scalar_subquery() for c in (newest, *counts)))).one()
    place = min(range(len(found)), key=found.__getitem__)
    walked = (limit + 1) * prod(total / max(count, 1) for count in found)
    return place if found[place] < walked else None


def _among(*sought: Condition) -> Condition:
    found = [select(terms.c.repository_id).where(term) for term in sought]
    return repositories.c.id.in_(found[0] if len(found) == 1 else intersect(*found))


def _has(term: Condition) -> Condition:
    # OFFSET 0 keeps PostgreSQL from turning this into a join with all rows of the term.
    here = select(terms.c.kind).where(terms.c.repository_id == repositories.c.id, term)
    return here.correlate(repositories).offset(0).exists()


def _cursor(query: ListQuery, last: Repository) -> str:
    value = getattr(last, SORTS[query.sort].name)
    said = [query.sort, query.direction, value.isoformat() if isinstance(value, datetime) else value, last.id]
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")


def _after(query: ListQuery) -> list[Condition]:
    """What comes after the cursor, where there is one."""
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
        raise Invalid("the cursor is not of this query: begin with the first page") from error
    return [_beyond(query, place, id_)]


def _beyond(query: ListQuery, value: Any, id_: int, *, back: bool = False) -> Condition:
    """What comes after a repository in the order of the query; `back`: what comes before it."""
    column, key = _sorting(query)
    here, there = tuple_(column, key), tuple_(literal(value, column.type), literal(id_))
    return here < there if (query.direction == -1) != back else here > there
