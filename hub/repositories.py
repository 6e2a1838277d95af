"""Repositories: create, change, move, delete, like, grant access; list them by terms."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import prod
from typing import Any, Literal, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    delete,
    func,
    insert,
    intersect,
    literal,
    select,
    tuple_,
    update,
)

from kcard.hub import (
    card_metadata,
    garbage,
    history,
    permissions,
    publications,
    quotas,
    search_index,
)
from kcard.hub.accounts import Identity, check_repository_name, check_unambiguous, fold_name
from kcard.hub.db.models import PRIVATE, PUBLIC, accounts, holdings, likes, now, repositories, terms, utc
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Invalid, NotFound
from kcard.hub.permissions import GRANTED, AccessRequest, State, readable
from kcard.hub.quotas import require_quota
from kcard.hub.search_index import AUTHOR, LONGEST, TAG, WORD, split_words
from kcard.hub.storage import Blobs, partial_folder
from kcard.hub.trees import git_oid
from kcard.hub.values import MAIN, Entry, Repository, RepositoryType

__all__ = ["LIMIT", "MOST", "SORTS", "Gate", "ListQuery", "Listing", "Repositories", "make_repository_row"]


Gate = Literal["no", "auto", "manual"]
REPOSITORY_COLUMNS = tuple(c for c in repositories.c if c.name not in {"namespace_id", "folded"})
# For git-lfs users; the hub ignores it.
ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
FIRST = "initial commit"


class Repositories:
    """The repositories of a hub. `quota`: the default quota of a namespace in bytes."""

    def __init__(self, database: Database, blobs: Blobs, *, quota: int | None = None) -> None:
        self._database, self._blobs, self._quota = database, blobs, quota

    def create(
        self, type_: RepositoryType, namespace_id: int, name: str, *, private: bool = False, by: Identity
    ) -> Repository:
        """Create a repository namespace/name with branch main, whose first commit has a .gitattributes.

        Raises Invalid for an invalid name, Conflict, which has the `name`, if it exists, TooLarge over quota.
        """
        check_repository_name(name)
        sha256 = hashlib.sha256(ATTRIBUTES).hexdigest()
        entry = Entry(".gitattributes", git_oid(ATTRIBUTES), sha256, len(ATTRIBUTES), lfs=False)
        tree = {entry.path: entry}
        metadata = card_metadata.read_metadata(tree, self._blobs)
        self.place_attributes()
        with self._database.write() as connection:
            # The name must be free and unambiguous.
            _refuse_another(connection, type_, name)
            check_unambiguous(name.partition("/")[2])
            self.place_attributes()  # gc may have deleted it meanwhile
            new = insert(repositories).values(make_repository_row(type_, namespace_id, name, private))
            repository_id = int(connection.execute(new.returning(repositories.c.id)).scalar_one())
            draft = history.draft_commit(str(repository_id), None, tree, FIRST, "", by.name)
            history.write_commit(connection, repository_id, MAIN, draft)
            history.add_holdings(connection, repository_id, {entry.sha256: entry})
            require_quota(connection, namespace_id, self._quota)
            card_metadata.write_metadata(
                connection, repository_id, name, metadata, sha=draft.commit.sha, at=draft.commit.date
            )
            return _find(connection, repositories.c.id == repository_id, name)

    def place_attributes(self) -> None:
        """Store the content of .gitattributes, unless it is stored."""
        sha256 = hashlib.sha256(ATTRIBUTES).hexdigest()
        if not self._blobs.holds(sha256):
            with partial_folder(self._blobs.partial) as scratch:
                (scratch / "blob").write_bytes(ATTRIBUTES)
                self._blobs.place(scratch / "blob", sha256, len(ATTRIBUTES))

    def get(self, type_: RepositoryType, name: str) -> Repository:
        """Return the repository of that name, in any case. Raises NotFound."""
        with self._database.read() as connection:
            return _find(connection, _named(type_, name), name)

    def readable(self, type_: RepositoryType, name: str, identity: Identity | None) -> Repository:
        """Return a repository that the identity may read. Raises NotFound otherwise, after the same work."""
        with self._database.read() as connection:
            return _find(connection, _named(type_, name) & readable(identity), name)

    def update(
        self, repository: Repository, *, private: bool | None = None, gated: Gate | None = None
    ) -> Repository:
        """Change visibility or gating; None: unchanged."""
        values: dict[str, str] = {}
        if private is not None:
            values["visibility"] = PRIVATE if private else PUBLIC
        if gated is not None:
            values["gated"] = gated
        with self._database.write() as connection:
            if values:
                connection.execute(update(repositories).where(_is(repository)).values(values))
                search_index.mark_changed(connection, [repository.id])
            return _find(connection, _is(repository), repository.name)

    def move(self, repository: Repository, to: str) -> Repository:
        """Move or rename it to namespace/name; this renames its card too.

        Raises Conflict if that name is taken or had other cards under the same published tags, NotFound for an
        unknown account, TooLarge if it exceeds the quota.
        """
        check_repository_name(to)
        with self._database.write() as connection:
            # The new name must be free and unambiguous.
            if fold_name(to) != fold_name(repository.name):
                _refuse_another(connection, repository.type, to)
            own = to.partition("/")[2]
            if fold_name(own) != fold_name(repository.name.partition("/")[2]):
                check_unambiguous(own)
            # Its namespace is spelled as the account is.
            namespace = to.partition("/")[0]
            query = select(accounts.c.id, accounts.c.name).where(accounts.c.folded == fold_name(namespace))
            account = connection.execute(query).one_or_none()
            if account is None:
                raise NotFound("account", f"can't move it to {to}: account {namespace!r} not found")
            to = f"{account.name}/{own}"
            # Move the repository, its quota, its published tags and its search terms.
            before = _find(connection, _is(repository), repository.name)
            quotas.transfer_repository(connection, repository.id, account.id)
            values = {"namespace_id": account.id, "name": to, "folded": fold_name(to)}
            connection.execute(update(repositories).where(_is(repository)).values(values))
            publications.record_tags(connection, repository.id, to)
            search_index.replace_terms(connection, repository.id, to, before.tags)
            search_index.update_rows(connection, repository.id)
            if before.namespace != to.partition("/")[0]:
                require_quota(connection, account.id, self._quota)
            return _find(connection, _is(repository), to)

    def delete(self, repository: Repository) -> None:
        """Delete it with its history, all versions of its card, and the blobs that nothing else refers to."""
        files = select(holdings.c.sha256).where(holdings.c.repository_id == repository.id)
        with self._database.write() as connection:
            _find(connection, _is(repository), repository.name)
            candidates = connection.scalars(files).all()
            quotas.discount_repository(connection, repository.id)
            connection.execute(delete(repositories).where(_is(repository)))
            search_index.mark_removed(connection)
        garbage.delete_unreferenced(self._database, self._blobs, candidates)

    def count_download(self, ids: Mapping[int, int]) -> None:
        """Add to the downloads of repositories, by id; deleted ones are ignored."""
        with self._database.write() as connection:
            for id_, more in sorted(ids.items()):
                one = update(repositories).where(repositories.c.id == id_)
                connection.execute(one.values(downloads=repositories.c.downloads + more))
            search_index.mark_changed(connection, [*ids])

    def like(self, repository: Repository, account_id: int, *, liked: bool = True) -> None:
        """Like a repository, or remove the like; each account counts once."""
        with self._database.write() as connection:
            _find(connection, _is(repository), repository.name)
            here = (likes.c.repository_id == repository.id, likes.c.account_id == account_id)
            connection.execute(delete(likes).where(*here))
            if liked:
                connection.execute(insert(likes).values(repository_id=repository.id, account_id=account_id))
            count = select(func.count()).where(likes.c.repository_id == repository.id).scalar_subquery()
            connection.execute(update(repositories).where(_is(repository)).values(likes=count))

    def request_access(self, repository: Repository, account_id: int, note: str = "") -> State:
        """Request access to a gated repository, unless already done; `note`: why. Returns the state."""
        with self._database.write() as connection:
            current = _find(connection, _is(repository), repository.name)
            state = permissions.find_state(connection, repository, account_id)
            if state is None:
                state = "pending" if current.gated == "manual" else GRANTED
                permissions.put_request(connection, repository, account_id, state, note)
            return state

    def grant(self, repository: Repository, account_id: int, state: State = GRANTED) -> None:
        """Set the access of an account, with or without a request."""
        with self._database.write() as connection:
            _find(connection, _is(repository), repository.name)
            permissions.put_request(connection, repository, account_id, state)

    def granted(self, repository: Repository, account_id: int | None) -> bool:
        """Return whether an account was granted access to a gated repository."""
        if account_id is None:
            return False
        with self._database.read() as connection:
            return permissions.find_state(connection, repository, account_id) == GRANTED

    def access_state(self, repository: Repository, account_id: int) -> State | None:
        """Return the state of an account's request; None without one."""
        with self._database.read() as connection:
            return permissions.find_state(connection, repository, account_id)

    def requests(self, repository: Repository) -> list[AccessRequest]:
        """Return all requests for access, oldest first."""
        with self._database.read() as connection:
            return permissions.list_requests(connection, repository)


def make_repository_row(
    type_: RepositoryType, namespace_id: int, name: str, private: bool = False
) -> dict[str, object]:
    """Return the row of a new repository."""
    at = now()
    return {
        "type": type_,
        "namespace_id": namespace_id,
        "name": name,
        "folded": fold_name(name),
        "visibility": PRIVATE if private else PUBLIC,
        "gated": "no",
        "created": at,
        "modified": at,
        "downloads": 0,
        "likes": 0,
        "card": "{}",
        "tags": "[]",
        "size": 0,
        "newest": 0,
    }


def repository_from_row(row: Row[Any]) -> Repository:
    """Return a row of REPOSITORY_COLUMNS as a value."""
    return Repository(
        id=row.id,
        type=row.type,
        name=row.name,
        private=row.visibility == PRIVATE,
        gated=row.gated,
        created=utc(row.created),
        modified=utc(row.modified),
        downloads=row.downloads,
        likes=row.likes,
        head=row.head,
        card=json.loads(row.card),
        tags=tuple(json.loads(row.tags)),
        pipeline_tag=row.pipeline_tag,
        library=row.library,
        size=row.size,
    )


def _is(repository: Repository) -> ColumnElement[bool]:
    return repositories.c.id == repository.id


def _named(type_: RepositoryType, name: str) -> ColumnElement[bool]:
    return (repositories.c.type == type_) & (repositories.c.folded == fold_name(name))


def _find(connection: Connection, condition: ColumnElement[bool], name: str) -> Repository:
    row = connection.execute(select(*REPOSITORY_COLUMNS).where(condition)).one_or_none()
    if row is None:
        raise NotFound("repository", f"repository {name[:200]!r} not found")
    return repository_from_row(row)


def _refuse_another(connection: Connection, type_: RepositoryType, name: str) -> None:
    existing = connection.scalar(select(repositories.c.name).where(_named(type_, name)))
    if existing is not None:
        raise Conflict(f"{type_} {existing!r} already exists: choose another name", name=existing)


# Paged listings of repositories: search, filter, sort.
#
# A query is a set of terms that a repository must have. If one of them is rare, its repositories are looked up and
# sorted. If all are common, repositories are scanned in the requested order until the page is full. If the terms are
# rarely found together, the scan is given up, and the repositories with all terms are looked up.

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

    type: RepositoryType
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
            exact.append((AUTHOR, fold_name(self.author)))
        conditions: list[Condition] = [
            (terms.c.kind == kind) & (terms.c.term == term) for kind, term in exact
        ]
        for word in sorted(split_words(self.search or "")):
            conditions.append((terms.c.kind == WORD) & terms.c.term.between(word, word + LAST))
        return conditions


class Listing:
    """Pages of repositories."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, query: ListQuery, identity: Identity | None) -> tuple[list[Repository], str | None]:
        """Return a page of the repositories that the identity may read, and the cursor of the next page, if any.

        A page ends early if its tags and metadata exceed LARGEST_PAGE, but has at least one repository. Changes between
        two pages neither repeat nor omit other repositories. Raises Invalid for a cursor of another query.
        """
        if query.search is not None and query.search.strip() and not split_words(query.search):
            return [], None
        with self._database.read() as connection:
            ids = _find_ids(connection, query, identity)
            page: list[Repository] = []
            size = 0
            for row in _read_rows(connection, ids[: query.limit], query.card):
                size += len(row.card) + len(row.tags)
                if page and size > LARGEST_PAGE:
                    break
                page.append(repository_from_row(row))
        return page, self.cursor(query, page[-1]) if len(ids) > len(page) else None

    def cursor(self, query: ListQuery, last: Repository) -> str:
        """Return the cursor of the page after this repository."""
        value = getattr(last, SORTS[query.sort].name)
        text = value.isoformat() if isinstance(value, datetime) else value
        state = [query.sort, query.direction, text, last.id]
        return base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")


def _read_rows(connection: Connection, ids: Sequence[int], card: bool) -> Iterator[Row[Any]]:
    """Yield the rows of repositories in this order, a few at a time, since one may have half a megabyte of metadata."""
    columns = [
        literal("{}").label("card") if c.name == "card" and not card else c for c in REPOSITORY_COLUMNS
    ]
    some = FEW if card else SOME
    for first in range(0, len(ids), some):
        here = select(*columns).where(repositories.c.id.in_(ids[first : first + some]))
        by_id = {row.id: row for row in connection.execute(here)}
        yield from (by_id[id_] for id_ in ids[first : first + some])


def _find_ids(connection: Connection, query: ListQuery, identity: Identity | None) -> list[int]:
    """Return the ids of the page in order, and one more if there is a next page."""
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
    if (rarest := find_rarest_term(connection, sought, query.limit)) is not None:
        others = sought[:rarest] + sought[rarest + 1 :]
        return ids(_is_among(sought[rarest]), *(_has_term(term) for term in others))
    # How far to scan before giving up; empty if there are fewer repositories than that.
    end = select(*_sorting(query)).where(*rest).order_by(*order).offset(SCANNED).limit(1)
    last = connection.execute(end).one_or_none()
    edge = [] if last is None else [_beyond(query, last[0], last[1], back=True)]
    matching = ids(*edge, *(_has_term(term) for term in sought))
    # Common terms may be rare together: then the scan would read all repositories.
    return matching if not edge or len(matching) > query.limit else ids(_is_among(*sought))


def _sorting(query: ListQuery) -> tuple[ColumnElement[Any], ColumnElement[int]]:
    return SORTS[query.sort], repositories.c.id


def find_rarest_term(connection: Connection, sought: Sequence[Condition], limit: int) -> int | None:
    """Return the index of the rarest term, to look up its repositories; None if scanning reads fewer rows."""
    counts = [
        select(func.count()).select_from(select(terms.c.kind).where(t).limit(COUNTED).subquery())
        for t in sought
    ]
    newest = select(func.coalesce(func.max(repositories.c.id), 1))
    total, *frequencies = connection.execute(select(*(c.scalar_subquery() for c in (newest, *counts)))).one()
    place = min(range(len(frequencies)), key=frequencies.__getitem__)
    scanned = (limit + 1) * prod(total / max(count, 1) for count in frequencies)
    return place if frequencies[place] < scanned else None


def _is_among(*sought: Condition) -> Condition:
    having = [select(terms.c.repository_id).where(term) for term in sought]
    return repositories.c.id.in_(having[0] if len(having) == 1 else intersect(*having))


def _has_term(term: Condition) -> Condition:
    # OFFSET 0 prevents PostgreSQL from joining with all rows of the term.
    here = select(terms.c.kind).where(terms.c.repository_id == repositories.c.id, term)
    return here.correlate(repositories).offset(0).exists()


def _after(query: ListQuery) -> list[Condition]:
    """Return the condition for repositories after the cursor; empty without one."""
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
    """Return the condition for repositories after one in the query's order; with `back`, before it."""
    column, key = _sorting(query)
    here, there = tuple_(column, key), tuple_(literal(value, column.type), literal(id_))
    return here < there if (query.direction == -1) != back else here > there
