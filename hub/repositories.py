"""Repositories: create, change, move, delete, like, grant access; list them by terms."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from math import prod
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Integer,
    ScalarSelect,
    Select,
    bindparam,
    delete,
    func,
    intersect,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.orm import Session, defer
from sqlalchemy.orm.attributes import set_committed_value

from kcard.hub import card_metadata, garbage, history, permissions, publications, quotas, search_index
from kcard.hub.accounts import Identity, check_repository_name, check_unambiguous, fold_name
from kcard.hub.db.columns import utc
from kcard.hub.db.models import (
    PRIVATE,
    PUBLIC,
    AccessRequest,
    AccessState,
    Account,
    Gate,
    Holding,
    Like,
    Repository,
    RepositoryType,
    Term,
)
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Invalid, NotFound
from kcard.hub.permissions import GRANTED, readable
from kcard.hub.quotas import require_quota
from kcard.hub.search_index import AUTHOR, LONGEST, TAG, WORD, split_words
from kcard.hub.storage import Blobs, partial_folder
from kcard.hub.trees import git_oid
from kcard.hub.values import MAIN, Entry

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
        with self._database.write() as session:
            # The name must be free and unambiguous.
            _refuse_another(session, type_, name)
            check_unambiguous(name.partition("/")[2])
            self.place_attributes()  # gc may have deleted it meanwhile
            visibility = PRIVATE if private else PUBLIC
            repository = Repository(
                type=type_,
                namespace_id=namespace_id,
                name=name,
                folded=fold_name(name),
                visibility=visibility,
            )
            session.add(repository)
            session.flush()
            draft = history.draft_commit(repository.id, None, tree, FIRST, "", by.name)
            history.write_commit(session, MAIN, draft)
            history.add_holdings(session, repository.id, {entry.sha256: entry})
            require_quota(session, namespace_id, self._quota)
            card_metadata.write_metadata(session, repository, metadata, draft.commit)
            return repository

    def place_attributes(self) -> None:
        """Store the content of .gitattributes, unless it is stored."""
        sha256 = hashlib.sha256(ATTRIBUTES).hexdigest()
        if not self._blobs.holds(sha256):
            with partial_folder(self._blobs.partial) as scratch:
                (scratch / "blob").write_bytes(ATTRIBUTES)
                self._blobs.place(scratch / "blob", sha256, len(ATTRIBUTES))

    def get(self, type_: RepositoryType, name: str) -> Repository:
        """Return the repository of that name, in any case. Raises NotFound."""
        with self._database.read() as session:
            return _find(session, _named(type_, name), name)

    def readable(self, type_: RepositoryType, name: str, identity: Identity | None) -> Repository:
        """Return a repository that the identity may read. Raises NotFound otherwise, after the same work."""
        with self._database.read() as session:
            return _find(session, _named(type_, name) & readable(identity), name)

    def update(
        self, repository: Repository, *, private: bool | None = None, gated: Gate | None = None
    ) -> Repository:
        """Change visibility or gating; None: unchanged."""
        with self._database.write() as session:
            current = _reload(session, repository)
            if private is not None:
                current.visibility = PRIVATE if private else PUBLIC
            if gated is not None:
                current.gated = gated
            if private is not None or gated is not None:
                search_index.mark_changed(session, [repository.id])
            return current

    def move(self, repository: Repository, to: str) -> Repository:
        """Move or rename it to namespace/name; this renames its card too.

        Raises Conflict if that name is taken or had other cards under the same published tags, NotFound for an
        unknown account, TooLarge if it exceeds the quota.
        """
        check_repository_name(to)
        with self._database.write() as session:
            # The new name must be free and unambiguous.
            if fold_name(to) != fold_name(repository.name):
                _refuse_another(session, repository.type, to)
            own = to.partition("/")[2]
            if fold_name(own) != fold_name(repository.name.partition("/")[2]):
                check_unambiguous(own)
            # Its namespace is spelled as the account is.
            namespace = to.partition("/")[0]
            account = session.scalar(select(Account).where(Account.folded == fold_name(namespace)))
            if account is None:
                raise NotFound("account", f"can't move it to {to}: account {namespace!r} not found")
            to = f"{account.name}/{own}"
            # Move the repository, its quota, its published tags and its search terms.
            current = _reload(session, repository)
            before = current.namespace
            quotas.transfer_repository(session, current.id, account.id)
            current.namespace_id, current.name, current.folded = account.id, to, fold_name(to)
            session.flush()
            publications.record_tags(session, current)
            search_index.replace_terms(session, current.id, to, current.tags)
            search_index.update_rows(session, current.id)
            if before != current.namespace:
                require_quota(session, account.id, self._quota)
            return current

    def delete(self, repository: Repository) -> None:
        """Delete it with its history, all versions of its card, and the blobs that nothing else refers to."""
        files = select(Holding.sha256).where(Holding.repository_id == repository.id)
        with self._database.write() as session:
            _reload(session, repository)
            candidates = session.scalars(files).all()
            quotas.discount_repository(session, repository.id)
            session.execute(delete(Repository).where(Repository.id == repository.id))
            search_index.mark_removed(session)
        garbage.delete_unreferenced(self._database, self._blobs, candidates)

    def count_download(self, ids: Mapping[int, int]) -> None:
        """Add to the downloads of repositories, by id; deleted ones are ignored."""
        with self._database.write() as session:
            for id_, more in sorted(ids.items()):
                one = update(Repository).where(Repository.id == id_)
                session.execute(one.values(downloads=Repository.downloads + more))
            search_index.mark_changed(session, [*ids])

    def like(self, repository: Repository, account_id: int, *, liked: bool = True) -> None:
        """Like a repository, or remove the like; each account counts once."""
        with self._database.write() as session:
            current = _reload(session, repository)
            here = (Like.repository_id == repository.id, Like.account_id == account_id)
            session.execute(delete(Like).where(*here))
            if liked:
                session.add(Like(repository_id=repository.id, account_id=account_id))
            count = select(func.count()).where(Like.repository_id == repository.id)
            current.likes = session.scalar(count) or 0

    def request_access(self, repository: Repository, account_id: int, note: str = "") -> AccessState:
        """Request access to a gated repository, unless already done; `note`: why. Returns the state."""
        with self._database.write() as session:
            current = _reload(session, repository)
            request = session.get(AccessRequest, (repository.id, account_id))
            if request is not None:
                return request.state
            state: AccessState = "pending" if current.gated == "manual" else GRANTED
            permissions.put_request(session, repository, account_id, state, note)
            return state

    def grant(self, repository: Repository, account_id: int, state: AccessState = GRANTED) -> None:
        """Set the access of an account, with or without a request."""
        with self._database.write() as session:
            _reload(session, repository)
            permissions.put_request(session, repository, account_id, state)

    def access_state(self, repository: Repository, account_id: int | None) -> AccessState | None:
        """Return the state of an account's request; None without one."""
        if account_id is None:
            return None
        with self._database.read() as session:
            request = session.get(AccessRequest, (repository.id, account_id))
            return None if request is None else request.state

    def requests(self, repository: Repository) -> list[AccessRequest]:
        """Return all requests for access, oldest first."""
        query = select(AccessRequest).where(AccessRequest.repository_id == repository.id)
        with self._database.read() as session:
            return [*session.scalars(query.order_by(AccessRequest.asked, AccessRequest.account))]


def _named(type_: RepositoryType, name: str) -> ColumnElement[bool]:
    return (Repository.type == type_) & (Repository.folded == fold_name(name))


@cache  # building a query takes longer than executing it
def _all_repositories() -> Select[Repository]:
    return select(Repository)


def _find(session: Session, condition: ColumnElement[bool], name: str) -> Repository:
    repository = session.scalar(_all_repositories().where(condition))
    if repository is None:
        raise NotFound("repository", f"repository {name[:200]!r} not found")
    return repository


def _reload(session: Session, repository: Repository) -> Repository:
    """Return the repository as it is now. Raises NotFound if it was deleted."""
    return _find(session, Repository.id == repository.id, repository.name)


def _refuse_another(session: Session, type_: RepositoryType, name: str) -> None:
    existing = session.scalar(select(Repository.name).where(_named(type_, name)))
    if existing is not None:
        raise Conflict(f"{type_} {existing!r} already exists: choose another name", name=existing)


# Paged listings of repositories: search, filter, sort.
#
# A query is a set of terms that a repository must have. If one of them is rare, its repositories are looked up and
# sorted. If all are common, repositories are scanned in the requested order until the page is full. If the terms are
# rarely found together, the scan is given up, and the repositories with all terms are looked up.

Condition: TypeAlias = ColumnElement[bool]
SORTS = {
    "lastModified": Repository.modified,
    "createdAt": Repository.created,
    "downloads": Repository.downloads,
    "likes": Repository.likes,
    "trendingScore": Repository.likes,
}
TIMES = ("lastModified", "createdAt")  # the others are counts
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

    @cached_property
    def terms(self) -> list[Condition]:
        """A condition on rows of `terms` for each term of the query."""
        tags = [*self.filters, *([self.pipeline_tag] if self.pipeline_tag else [])]
        exact = [(TAG, tag.lower()[:LONGEST]) for tag in dict.fromkeys(tags)]
        if self.author is not None:
            exact.append((AUTHOR, fold_name(self.author)))
        conditions: list[Condition] = [(Term.kind == kind) & (Term.term == term) for kind, term in exact]
        for word in sorted(split_words(self.search or "")):
            conditions.append((Term.kind == WORD) & Term.term.between(word, word + LAST))
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
        with self._database.read() as session:
            ids = _find_ids(session, query, identity)
            page: list[Repository] = []
            size = 0
            for repository, length in _read_rows(session, ids[: query.limit], query.card):
                size += length
                if page and size > LARGEST_PAGE:
                    break
                page.append(repository)
        return page, self.cursor(query, page[-1]) if len(ids) > len(page) else None

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
    some = FEW if card else SOME
    for first in range(0, len(ids), some):
        rows = session.execute(_measured_rows(card), {"ids": ids[first : first + some]})
        by_id = {row[0].id: row for row in rows.tuples()}
        for id_ in ids[first : first + some]:
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
    if (rarest := find_rarest_term(session, sought, query.limit)) is not None:
        others = sought[:rarest] + sought[rarest + 1 :]
        return ids(_is_among(sought[rarest]), *(_has_term(term) for term in others))
    # How far to scan before giving up; empty if there are fewer repositories than that.
    end = select(*_sorting(query)).where(*rest).order_by(*order).offset(SCANNED).limit(1)
    last = session.execute(end).one_or_none()
    edge = [] if last is None else [_beyond(query, last[0], last[1], back=True)]
    matching = ids(*edge, *(_has_term(term) for term in sought))
    # Common terms may be rare together: then the scan would read all repositories.
    return matching if not edge or len(matching) > query.limit else ids(_is_among(*sought))


def _sorting(query: ListQuery) -> tuple[Any, Any]:
    return SORTS[query.sort], Repository.id


def find_rarest_term(session: Session, sought: Sequence[Condition], limit: int) -> int | None:
    """Return the index of the rarest term, to look up its repositories; None if scanning reads fewer rows."""
    rows = [select(Term.kind).where(term).limit(COUNTED).subquery() for term in sought]
    counts = [select(func.count()).select_from(each).scalar_subquery() for each in rows]
    total, *frequencies = session.execute(select(_highest_id(), *counts)).one()
    place = min(range(len(frequencies)), key=frequencies.__getitem__)
    scanned = (limit + 1) * prod(total / max(count, 1) for count in frequencies)
    return place if frequencies[place] < scanned else None


@cache
def _highest_id() -> ScalarSelect[int]:
    return select(func.coalesce(func.max(Repository.id), 1)).scalar_subquery()


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
        if type(id_) is not int or abs(id_) > LARGEST:
            raise ValueError(text)
        place: datetime | int
        if query.sort in TIMES:
            place = utc(datetime.fromisoformat(value))
        elif type(value) is int and abs(value) <= LARGEST:
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
    return here < there if (query.direction == -1) != back else here > there
