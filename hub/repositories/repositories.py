"""Repositories: create, get, update, move, delete, like, request access. Permissions are in permissions.py."""

import hashlib
from collections.abc import Mapping
from typing import Literal

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.names import check_repository, check_unambiguous, folded
from kcard.hub.accounts.quotas import require_quota
from kcard.hub.records.account_tables import accounts
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import holdings, likes, repositories
from kcard.hub.records.utc import now
from kcard.hub.refusals import Conflict, NotThere
from kcard.hub.repositories import (
    access,
    blob_references,
    card_metadata,
    history,
    new_versions,
    rows,
    search_rows,
    terms,
    usage,
)
from kcard.hub.repositories.access import GRANTED, AccessRequest, State
from kcard.hub.repositories.file_entries import git_oid
from kcard.hub.repositories.readable import readable
from kcard.hub.repositories.values import MAIN, Entry, Repository, Type
from kcard.hub.store.blobs import Blobs
from kcard.hub.store.disk import partial_folder

__all__ = ["Gate", "Repositories", "fresh"]

Gate = Literal["no", "auto", "manual"]
# For git-lfs users; the hub ignores it.
ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
FIRST = "initial commit"


class Repositories:
    """The repositories of a hub. `quota`: the default quota of a namespace in bytes."""

    def __init__(self, database: Database, blobs: Blobs, *, quota: int | None = None) -> None:
        self._database, self._blobs, self._quota = database, blobs, quota

    def create(
        self, type_: Type, namespace_id: int, name: str, *, private: bool = False, by: Identity
    ) -> Repository:
        """Create a repository namespace/name with branch main, whose first commit has a .gitattributes.

        Raises Invalid for an invalid name, Conflict, which has the `name`, if it exists, TooLarge over quota.
        """
        check_repository(name)
        entry = _attributes()
        tree = {entry.path: entry}
        shown = card_metadata.read(tree, self._blobs)
        self._place()
        with self._database.write() as connection:
            _refuse_another(connection, type_, name)
            check_unambiguous(name.partition("/")[2])
            self._place()  # gc may have taken it meanwhile
            new = insert(repositories).values(fresh(type_, namespace_id, name, private))
            made = int(connection.execute(new.returning(repositories.c.id)).scalar_one())
            draft = history.prepare(str(made), None, tree, FIRST, "", by.name)
            history.write(connection, made, MAIN, draft)
            history.hold(connection, made, {entry.sha256: entry})
            require_quota(connection, namespace_id, self._quota)
            card_metadata.write(connection, made, name, shown, sha=draft.commit.sha, at=draft.commit.date)
            return _find(connection, repositories.c.id == made, name)

    def _place(self) -> None:
        sha256 = hashlib.sha256(ATTRIBUTES).hexdigest()
        if not self._blobs.holds(sha256):
            with partial_folder(self._blobs.partial) as scratch:
                (scratch / "blob").write_bytes(ATTRIBUTES)
                self._blobs.place(scratch / "blob", sha256, len(ATTRIBUTES))

    def get(self, type_: Type, name: str) -> Repository:
        """The repository of that name, in any case. Raises NotThere."""
        with self._database.read() as connection:
            return _find(connection, _named(type_, name), name)

    def readable(self, type_: Type, name: str, identity: Identity | None) -> Repository:
        """As `get`, for the identity. Raises NotThere also if it may not read it, after the same work."""
        with self._database.read() as connection:
            return _find(connection, _named(type_, name) & readable(identity), name)

    def update(
        self, repository: Repository, *, private: bool | None = None, gated: Gate | None = None
    ) -> Repository:
        """Change visibility or gating; None: unchanged."""
        values: dict[str, str] = {}
        if private is not None:
            values["visibility"] = rows.PRIVATE if private else rows.PUBLIC
        if gated is not None:
            values["gated"] = gated
        with self._database.write() as connection:
            if values:
                connection.execute(update(repositories).where(_is(repository)).values(values))
                search_rows.touch(connection, [repository.id])
            return _find(connection, _is(repository), repository.name)

    def move(self, repository: Repository, to: str) -> Repository:
        """Move or rename it to namespace/name; this renames its card too.

        Raises Conflict if that name is taken or had other cards under the same published tags, NotThere for an
        unknown account, TooLarge if it exceeds the quota.
        """
        check_repository(to)
        with self._database.write() as connection:
            if folded(to) != folded(repository.name):
                _refuse_another(connection, repository.type, to)
            own = to.partition("/")[2]
            if folded(own) != folded(repository.name.partition("/")[2]):
                check_unambiguous(own)
            account, to = _namespace(connection, to)
            there = _find(connection, _is(repository), repository.name)
            usage.move(connection, repository.id, account)
            values = {"namespace_id": account, "name": to, "folded": folded(to)}
            connection.execute(update(repositories).where(_is(repository)).values(values))
            new_versions.record(connection, repository.id, to)
            terms.put(connection, repository.id, to, there.tags)
            search_rows.put(connection, repository.id)
            if there.namespace != to.partition("/")[0]:
                require_quota(connection, account, self._quota)
            return _find(connection, _is(repository), to)

    def delete(self, repository: Repository) -> None:
        """Delete it with its history, all versions of its card, and the blobs that nothing else refers to."""
        held = select(holdings.c.sha256).where(holdings.c.repository_id == repository.id)
        with self._database.write() as connection:
            _find(connection, _is(repository), repository.name)
            candidates = connection.scalars(held).all()
            usage.remove(connection, repository.id)
            connection.execute(delete(repositories).where(_is(repository)))
            search_rows.removed(connection)
        blob_references.discard(self._database, self._blobs, candidates)

    def count_download(self, ids: Mapping[int, int]) -> None:
        """Add to the downloads of repositories, by id; deleted ones are ignored."""
        with self._database.write() as connection:
            for id_, more in sorted(ids.items()):
                one = update(repositories).where(repositories.c.id == id_)
                connection.execute(one.values(downloads=repositories.c.downloads + more))
            search_rows.touch(connection, [*ids])

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
            there = _find(connection, _is(repository), repository.name)
            state = access.find(connection, repository, account_id)
            if state is None:
                state = "pending" if there.gated == "manual" else GRANTED
                access.put(connection, repository, account_id, state, note)
            return state

    def grant(self, repository: Repository, account_id: int, state: State = GRANTED) -> None:
        """Set the access of an account, with or without a request."""
        with self._database.write() as connection:
            _find(connection, _is(repository), repository.name)
            access.put(connection, repository, account_id, state)

    def granted(self, repository: Repository, account_id: int | None) -> bool:
        """Whether an account was granted access to a gated repository."""
        if account_id is None:
            return False
        with self._database.read() as connection:
            return access.find(connection, repository, account_id) == GRANTED

    def access_state(self, repository: Repository, account_id: int) -> State | None:
        """The state of an account's request; None without one."""
        with self._database.read() as connection:
            return access.find(connection, repository, account_id)

    def requests(self, repository: Repository) -> list[AccessRequest]:
        """All requests for access, oldest first."""
        with self._database.read() as connection:
            return access.waiting(connection, repository)


def _attributes() -> Entry:
    sha256 = hashlib.sha256(ATTRIBUTES).hexdigest()
    return Entry(".gitattributes", git_oid(ATTRIBUTES), sha256, len(ATTRIBUTES), lfs=False)


def fresh(type_: Type, namespace_id: int, name: str, private: bool = False) -> dict[str, object]:
    """The row of a new repository."""
    at = now()
    return {
        "type": type_,
        "namespace_id": namespace_id,
        "name": name,
        "folded": folded(name),
        "visibility": rows.PRIVATE if private else rows.PUBLIC,
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


def _is(repository: Repository) -> ColumnElement[bool]:
    return repositories.c.id == repository.id


def _named(type_: Type, name: str) -> ColumnElement[bool]:
    return (repositories.c.type == type_) & (repositories.c.folded == folded(name))


def _find(connection: Connection, condition: ColumnElement[bool], name: str) -> Repository:
    found = connection.execute(select(*rows.REPOSITORY_COLUMNS).where(condition)).one_or_none()
    if found is None:
        raise NotThere("repository", f"repository {name[:200]!r} not found")
    return rows.repository(found)


def _refuse_another(connection: Connection, type_: Type, name: str) -> None:
    there = connection.scalar(select(repositories.c.name).where(_named(type_, name)))
    if there is not None:
        raise Conflict(f"{type_} {there!r} already exists: choose another name", name=there)


def _namespace(connection: Connection, name: str) -> tuple[int, str]:
    """The account of a repository name, and the name with the case of the account's."""
    namespace, _, own = name.partition("/")
    query = select(accounts.c.id, accounts.c.name).where(accounts.c.folded == folded(namespace))
    found = connection.execute(query).one_or_none()
    if found is None:
        raise NotThere("account", f"can't move it to {name}: account {namespace!r} not found")
    return found.id, f"{found.name}/{own}"
