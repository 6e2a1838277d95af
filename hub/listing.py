"""Paged listings of repositories for clients: search, filter, sort."""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from sqlalchemy import ColumnElement, Integer, Select, bindparam, func, select
from sqlalchemy.orm import Session, defer
from sqlalchemy.orm.attributes import set_committed_value

from kcard.batching import batched
from kcard.hub.accounts import Identity
from kcard.hub.db.columns import utc
from kcard.hub.db.models import Repository, RepositoryType
from kcard.hub.db.session import Database
from kcard.hub.errors import Invalid
from kcard.hub.search import SearchIndex, select_matching
from kcard.hub.search_index import normalise_words

# The column of each sort.
SORTS = {
    "lastModified": "modified",
    "createdAt": "created",
    "downloads": "downloads",
    "likes": "likes",
    "trendingScore": "likes",
}
TIME_SORTS = ("lastModified", "createdAt")  # the others are counts
DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000
MAX_PAGE_CHARACTERS = 1 << 20  # of the tags and metadata of a page
ROWS_PER_READ, ROWS_WITH_METADATA_PER_READ = 100, 10
MAX_TERMS = 20
MAX_INTEGER = 2**31 - 1  # of an integer column


@dataclass(frozen=True)
class ListQuery:
    """A query for repositories of a type.

    search      words; each must be a prefix of a word in the name, the domain, the description or a tag
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
        count = len(set(normalise_words(self.search or ""))) + len(self.tags)
        if count > MAX_TERMS:
            raise Invalid(f"too many words and tags ({count}): the limit is {MAX_TERMS}")

    @property
    def tags(self) -> list[str]:
        """The required tags, with the pipeline tag, which is one."""
        tags = [*self.filters]
        if self.pipeline_tag:
            tags.append(self.pipeline_tag)
        return tags


class Listing:
    """Pages of repositories."""

    def __init__(self, database: Database, index: SearchIndex) -> None:
        self._database, self._index = database, index

    def page(self, query: ListQuery, identity: Identity | None) -> tuple[list[Repository], str | None]:
        """Return a page of the repositories that the identity may read, and the cursor of the next page, if any.

        A page ends early if its tags and metadata exceed MAX_PAGE_CHARACTERS, but has at least one repository. Changes
        between two pages neither repeat nor omit other repositories. Raises Invalid for a cursor of another query.
        """
        with self._database.read() as session:
            ids = self._find_ids(session, query, identity)
            page: list[Repository] = []
            size = 0
            for repository, length in _read_rows(session, ids[: query.limit], query.card):
                size += length
                if page and size > MAX_PAGE_CHARACTERS:
                    return page, self.cursor(query, page[-1])
                page.append(repository)
        following = None
        if page and len(ids) > query.limit:
            following = self.cursor(query, page[-1])
        return page, following

    def cursor(self, query: ListQuery, last: Repository) -> str:
        """Return the cursor of the page after this repository."""
        value = getattr(last, SORTS[query.sort])
        if isinstance(value, datetime):
            value = value.isoformat()
        state = [query.sort, query.direction, value, last.id]
        return base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")

    def _find_ids(self, session: Session, query: ListQuery, identity: Identity | None) -> list[int]:
        """Return the ids of the page in order, and one more if there is a next page."""
        snapshot = self._index.at(session)
        text = query.search or ""
        matching = select_matching(session, snapshot, query.type, identity, text, query.tags, query.author)
        if query.gated is not None:
            matching &= snapshot["gated"] == query.gated
        column = SORTS[query.sort]
        order = snapshot.descending(column)
        if query.direction == 1:
            order = order[::-1]
        if query.cursor is not None:
            value, id_ = _read_cursor(query, query.cursor)
            values, ids = snapshot[column], snapshot["id"]
            if query.direction == 1:
                matching &= (values > value) | ((values == value) & (ids > id_))
            else:
                matching &= (values < value) | ((values == value) & (ids < id_))
        chosen = order[matching[order]][: query.limit + 1]
        return [int(id_) for id_ in snapshot["id"][chosen]]


def _read_rows(session: Session, ids: Sequence[int], card: bool) -> Iterator[tuple[Repository, int]]:
    """Yield repositories in this order, each with the characters of its metadata and tags.

    A few are read at a time, since one may have half a megabyte of metadata, which is read only with `card`.
    """
    step = ROWS_WITH_METADATA_PER_READ if card else ROWS_PER_READ
    for batch in batched(ids, step):
        rows = session.execute(_measured_rows(card), {"ids": batch})
        by_id = {row[0].id: row for row in rows.tuples()}
        for id_ in batch:
            if id_ not in by_id:  # the index may be newer than this transaction
                continue
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


def _read_cursor(query: ListQuery, text: str) -> tuple[float, int]:
    """Return the sorted value and the id of the last repository of the page before. Raises Invalid."""
    try:
        sort, direction, value, id_ = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if (sort, direction) != (query.sort, query.direction):
            raise ValueError(text)
        # type(), since a boolean is an int, too.
        if type(id_) is not int or abs(id_) > MAX_INTEGER:
            raise ValueError(text)
        if query.sort in TIME_SORTS:
            return utc(datetime.fromisoformat(value)).timestamp(), id_
        if type(value) is not int or abs(value) > MAX_INTEGER:
            raise ValueError(text)
        return value, id_
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Invalid("invalid cursor for this query: start with the first page") from error
