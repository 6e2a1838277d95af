"""Paged listings of repositories for clients: search, filter, sort.

A query is a set of terms that a repository must have. If one of them is rare, its repositories are looked up and
sorted. If all are common, repositories are scanned in the requested order until the page is full. If the terms are
rarely found together, the scan is given up, and the repositories with all terms are looked up.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from math import prod
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    bindparam,
    func,
    intersect,
    literal,
    select,
    tuple_,
)
from sqlalchemy.orm import Session, defer
from sqlalchemy.orm.attributes import set_committed_value

from kcard.batching import batched
from kcard.hub.accounts import Identity
from kcard.hub.db.columns import utc
from kcard.hub.db.models import Repository, RepositoryType, Term
from kcard.hub.db.session import Database
from kcard.hub.errors import Invalid
from kcard.hub.permissions import readable
from kcard.hub.search_index import WORD, exact_terms, split_words

Condition: TypeAlias = ColumnElement[bool]
SORTS = {
    "lastModified": Repository.modified,
    "createdAt": Repository.created,
    "downloads": Repository.downloads,
    "likes": Repository.likes,
    "trendingScore": Repository.likes,
}
TIME_SORTS = ("lastModified", "createdAt")  # the others are counts
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000
MAX_PAGE_CHARACTERS = 1 << 20  # of the tags and metadata of a page
ROWS_PER_READ, ROWS_WITH_METADATA_PER_READ = 100, 10
MAX_TERMS = 20
# Rows of a term are counted up to here; with more, scanning is faster whatever the exact number.
MAX_COUNTED_ROWS = 10_000
MAX_SCANNED_ROWS = 5_000  # repositories before the scan is given up
MAX_INTEGER = 2**31 - 1  # of an integer column
HIGHEST_ID = select(func.coalesce(func.max(Repository.id), 1)).scalar_subquery()
LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True)
class ListQuery:
    """A query for repositories of a type.

    search      words; each must be a prefix of a word in the full name or a tag
    author      namespace, in any case
    filters     required tags, in any case
    sort        a key of SORTS, then id; trendingScore means likes
    direction   -1 descending, 1 ascending
    limit       page size, at most MAX_PAGE_SIZE
    cursor      start of the page, from `Listing.page` or `Listing.cursor`
    card        whether to read the metadata of README.md
    """

    type: RepositoryType
    search: str | None = None
    author: str | None = None
    filters: Sequence[str] = ()
    sort: str = "lastModified"
    direction: int = -1
    limit: int = DEFAULT_PAGE_SIZE
    cursor: str | None = None
    gated: bool | None = None
    pipeline_tag: str | None = None
    card: bool = False

    def __post_init__(self) -> None:
        if self.sort not in SORTS:
            raise Invalid(f"unknown sort {self.sort[:50]!r}: use {', '.join(SORTS)}")
        if self.direction not in (-1, 1):
            raise Invalid(f"invalid direction {self.direction}: use -1 (descending) or 1 (ascending)")
        if not 1 <= self.limit <= MAX_PAGE_SIZE:
            raise Invalid(f"invalid limit {self.limit}: use 1 to {MAX_PAGE_SIZE}")
        if len(self.terms) > MAX_TERMS:
            raise Invalid(f"too many words and tags ({len(self.terms)}): the limit is {MAX_TERMS}")

    @cached_property
    def terms(self) -> list[Condition]:
        """A condition on rows of `terms` for each term of the query."""
        tags = [*self.filters]
        if self.pipeline_tag:
            tags.append(self.pipeline_tag)
        conditions: list[Condition] = []
        for kind, term in exact_terms(tags, self.author):
            conditions.append((Term.kind == kind) & (Term.term == term))
        for word in sorted(split_words(self.search or "")):
            conditions.append((Term.kind == WORD) & Term.term.between(word, word + LAST_CHARACTER))
        return conditions


class Listing:
    """Pages of repositories."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, query: ListQuery, identity: Identity | None) -> tuple[list[Repository], str | None]:
        """Return a page of the repositories that the identity may read, and the cursor of the next page, if any.

        A page ends early if its tags and metadata exceed MAX_PAGE_CHARACTERS, but has at least one repository. Changes
        between two pages neither repeat nor omit other repositories. Raises Invalid for a cursor of another query.
        """
        if query.search is not None and query.search.strip() and not split_words(query.search):
            return [], None
        with self._database.read() as session:
            ids = _find_ids(session, query, identity)
            page: list[Repository] = []
            size = 0
            for repository, length in _read_rows(session, ids[: query.limit], query.card):
                size += length
                if page and size > MAX_PAGE_CHARACTERS:
                    break
                page.append(repository)
        if len(ids) == len(page):
            return page, None
        return page, self.cursor(query, page[-1])

    def cursor(self, query: ListQuery, last: Repository) -> str:
        """Return the cursor of the page after this repository."""
        value = getattr(last, SORTS[query.sort].name)
        text = value.isoformat() if isinstance(value, datetime) else value
        state = [query.sort, query.direction, text, last.id]
        return base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")


def _read_rows(session: Session, ids: Sequence[int], card: bool) -> Iterator[tuple[Repository, int]]:
    """Yield repositories in this order, each with the characters of its metadata and tags.

    A few are read at a time, since one may have half a megabyte of metadata, which is read only with `card`.
    """
    step = ROWS_WITH_METADATA_PER_READ if card else ROWS_PER_READ
    for batch in batched(ids, step):
        rows = session.execute(_measured_rows(card), {"ids": batch})
        by_id = {row[0].id: row for row in rows.tuples()}
        for id_ in batch:
            if not card:
                set_committed_value(by_id[id_][0], "card", {})
            yield by_id[id_]


@cache
def _measured_rows(card: bool) -> Select[Repository, int]:
    length: ColumnElement[int] = func.length(Repository.tags, type_=Integer)
    if card:
        length += func.length(Repository.card, type_=Integer)
    query = select(Repository, length).where(Repository.id.in_(bindparam("ids", expanding=True)))
    return query if card else query.options(defer(Repository.card, raiseload=True))


def _find_ids(session: Session, query: ListQuery, identity: Identity | None) -> list[int]:
    """Return the ids of the page in order, and one more if there is a next page."""
    rest = [Repository.type == query.type, *_after(query)]
    order = [column.desc() if query.direction == -1 else column.asc() for column in _sorting(query)]
    conditions = [*rest, readable(identity)]
    if query.gated is not None:
        conditions.append((Repository.gated != "no") == literal(query.gated))

    def ids(*more: Condition) -> list[int]:
        page = select(Repository.id).where(*conditions, *more).order_by(*order)
        return list(session.scalars(page.limit(query.limit + 1)))

    sought = query.terms
    if not sought:
        return ids()
    rarest = find_rarest_term(session, sought, query.limit)
    if rarest is not None:
        others = sought[:rarest] + sought[rarest + 1 :]
        return ids(_is_among(sought[rarest]), *map(_has_term, others))
    # How far to scan before giving up; empty if there are fewer repositories than that.
    end = select(*_sorting(query)).where(*rest).order_by(*order).offset(MAX_SCANNED_ROWS).limit(1)
    last = session.execute(end).one_or_none()
    if last is None:
        return ids(*map(_has_term, sought))
    matching = ids(_beyond(query, last[0], last[1], back=True), *map(_has_term, sought))
    if len(matching) > query.limit:
        return matching
    # Common terms may be rare together: then the scan would read all repositories.
    return ids(_is_among(*sought))


def _sorting(query: ListQuery) -> tuple[Any, Any]:
    return SORTS[query.sort], Repository.id


def find_rarest_term(session: Session, sought: Sequence[Condition], limit: int) -> int | None:
    """Return the index of the rarest term, to look up its repositories; None if scanning reads fewer rows."""
    rows = [select(Term.kind).where(term).limit(MAX_COUNTED_ROWS).subquery() for term in sought]
    counts = [select(func.count()).select_from(each).scalar_subquery() for each in rows]
    total, *frequencies = session.execute(select(HIGHEST_ID, *counts)).one()
    place = min(range(len(frequencies)), key=frequencies.__getitem__)
    scanned = (limit + 1) * prod(total / max(count, 1) for count in frequencies)
    return place if frequencies[place] < scanned else None


def _is_among(*sought: Condition) -> Condition:
    having = [select(Term.repository_id).where(term) for term in sought]
    return Repository.id.in_(having[0] if len(having) == 1 else intersect(*having))


def _has_term(term: Condition) -> Condition:
    # OFFSET 0 prevents PostgreSQL from joining with all rows of the term.
    here = select(Term.kind).where(Term.repository_id == Repository.id, term)
    return here.correlate(Repository).offset(0).exists()


def _after(query: ListQuery) -> list[Condition]:
    """Return the condition for repositories after the cursor; empty without one."""
    if query.cursor is None:
        return []
    try:
        text = query.cursor
        sort, direction, value, id_ = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if (sort, direction) != (query.sort, query.direction):
            raise ValueError(text)
        # type(), since a boolean is an int, too.
        if type(id_) is not int or abs(id_) > MAX_INTEGER:
            raise ValueError(text)
        place: datetime | int
        if query.sort in TIME_SORTS:
            place = utc(datetime.fromisoformat(value))
        elif type(value) is int and abs(value) <= MAX_INTEGER:
            place = value
        else:
            raise ValueError(text)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Invalid("invalid cursor for this query: start with the first page") from error
    return [_beyond(query, place, id_)]


def _beyond(query: ListQuery, value: Any, id_: int, *, back: bool = False) -> Condition:
    """Return the condition for repositories after one in the query's order; with `back`, before it."""
    column, key = _sorting(query)
    here, there = tuple_(column, key), tuple_(literal(value, column.type), literal(id_))
    if (query.direction == -1) != back:
        return here < there
    return here > there
