"""Repositories: made, found, moved, hidden, liked, and asked for. Who may do that: kcard.hub.repositories.rights."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.names import check_repository, folded
from kcard.hub.accounts.quotas import require_room
from kcard.hub.records.account_tables import accounts
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import likes, repositories
from kcard.hub.records.utc import now
from kcard.hub.refusals import Conflict, NotThere
from kcard.hub.repositories import access, card_metadata, history, rows, terms
from kcard.hub.repositories.access import GRANTED, AccessRequest, State
from kcard.hub.repositories.values import MAIN, Entry, Repository, Type
from kcard.hub.store.disk import partial_folder

if TYPE_CHECKING:
    from kcard.hub.store.blobs import Blobs

__all__ = ["Repositories", "fresh"]

Gate = Literal["no", "auto", "manual"]
# What git-lfs users expect to find; the hub itself goes by how a file was uploaded.
ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
FIRST = "initial commit"


class Repositories:
    """The repositories of a hub. `quota`: bytes that a namespace may hold where its account says nothing."""

    def __init__(self, database: Database, blobs: "Blobs", *, quota: int | None = None) -> None:
        self._database, self._blobs, self._quota = database, blobs, quota

    def create(
        self, type_: Type, namespace_id: int, name: str, *, private: bool = False, by: Identity
    ) -> Repository:
        """Make a repository namespace/name with branch main, whose first commit holds .gitattributes.

        Raises Invalid for a name that can't be one, Conflict, which has the `name`, where it is there already.
        """
        check_repository(name)
        entry = _attributes()
        tree = {entry.path: entry}
        shown = card_metadata.read(tree, self._blobs)
        self._place()
        with self._database.write() as connection:
            _refuse_another(connection, type_, name)
            self._place()  # gc may have taken it meanwhile
            new = insert(repositories).values(fresh(type_, namespace_id, name, private))
            made = int(connection.execute(new.returning(repositories.c.id)).scalar_one())
            draft = history.prepare(str(made), None, tree, FIRST, "", by.name)
            history.write(connection, made, MAIN, draft)
            history.hold(connection, made, {entry.sha256: entry})
            card_metadata.write(connection, made, name, shown, sha=draft.commit.sha, at=draft.commit.date)
            return _find(connection, repositories.c.id == made, name)

    def _place(self) -> None:
        sha256 = hashlib.sha256(ATTRIBUTES).hexdigest()
        if not self._blobs.holds(sha256):
            with partial_folder(self._blobs.partial) as scratch:
                (scratch / "blob").write_bytes(ATTRIBUTES)
                self._blobs.place(scratch / "blob", sha256, len(ATTRIBUTES))

    def get(self, type_: Type, name: str) -> Repository:
        """The repository of that name, whatever its case; NotThere where there is none."""
        with self._database.read() as connection:
            return _find(connection, _named(type_, name), name)

    def update(
        self, repository: Repository, *, private: bool | None = None, gated: Gate | None = None
    ) -> Repository:
        """Hide or show it, ask or no longer ask those who want its files; what is None stays as it is."""
        values: dict[str, str] = {}
        if private is not None:
            values["visibility"] = rows.PRIVATE if private else rows.PUBLIC
        if gated is not None:
            values["gated"] = gated
        with self._database.write() as connection:
            if values:
                connection.execute(update(repositories).where(_is(repository)).values(values))
            return _find(connection, _is(repository), repository.name)

    def move(self, repository: Repository, to: str) -> Repository:
        """Give it another name, namespace/name; its published card gets that name too.

        Raises Conflict where that name is taken, NotThere where there is no such account, TooLarge where that
        account has no room for it.
        """
        check_repository(to)
        with self._database.write() as connection:
            if folded(to) != folded(repository.name):
                _refuse_another(connection, repository.type, to)
            account, to = _namespace(connection, to)
            there = _find(connection, _is(repository), repository.name)
            values = {"namespace_id": account, "name": to, "folded": folded(to)}
            connection.execute(update(repositories).where(_is(repository)).values(values))
            terms.put(connection, repository.id, to, there.tags)
            if there.namespace != to.partition("/")[0]:
                require_room(connection, account, self._quota)
            return _find(connection, _is(repository), to)

    def delete(self, repository: Repository) -> None:
        """Delete it with its history, and the card that it published with all versions."""
        with self._database.write() as connection:
            _find(connection, _is(repository), repository.name)
            connection.execute(delete(repositories).where(_is(repository)))

    def count_download(self, ids: Mapping[int, int]) -> None:
        """Add to the downloads of repositories, by id; those that are gone are left out."""
        with self._database.write() as connection:
            for id_, more in sorted(ids.items()):
                one = update(repositories).where(repositories.c.id == id_)
                connection.execute(one.values(downloads=repositories.c.downloads + more))

    def like(self, repository: Repository, account_id: int) -> None:
        """Let an account like a repository; it counts once."""
        self._like(repository, account_id, liked=True)

    def unlike(self, repository: Repository, account_id: int) -> None:
        """Take a like back; nothing happens where there is none."""
        self._like(repository, account_id, liked=False)

    def _like(self, repository: Repository, account_id: int, *, liked: bool) -> None:
        with self._database.write() as connection:
            _find(connection, _is(repository), repository.name)
            here = (likes.c.repository_id == repository.id, likes.c.account_id == account_id)
            connection.execute(delete(likes).where(*here))
            if liked:
                connection.execute(insert(likes).values(repository_id=repository.id, account_id=account_id))
            count = select(func.count()).where(likes.c.repository_id == repository.id).scalar_subquery()
            connection.execute(update(repositories).where(_is(repository)).values(likes=count))

    def request_access(self, repository: Repository, account_id: int) -> State:
        """Ask for the files of a gated repository; an answer that was given stays. Returns the answer so far."""
        with self._database.write() as connection:
            there = _find(connection, _is(repository), repository.name)
            state = access.find(connection, repository, account_id)
            if state is None:
                state = "pending" if there.gated == "manual" else GRANTED
                access.put(connection, repository, account_id, state)
            return state

    def grant(self, repository: Repository, account_id: int, state: State = GRANTED) -> None:
        """Answer an account, whether it asked or not."""
        with self._database.write() as connection:
            _find(connection, _is(repository), repository.name)
            access.put(connection, repository, account_id, state)

    def granted(self, repository: Repository, account_id: int | None) -> bool:
        """Whether an account was granted access to the files of a gated repository."""
        if account_id is None:
            return False
        with self._database.read() as connection:
            return access.find(connection, repository, account_id) == GRANTED

    def requests(self, repository: Repository) -> list[AccessRequest]:
        """Everyone who asked for access, in that order."""
        with self._database.read() as connection:
            return access.waiting(connection, repository)


def _attributes() -> Entry:
    header = f"blob {len(ATTRIBUTES)}\0".encode()
    oid = hashlib.sha1(header + ATTRIBUTES, usedforsecurity=False).hexdigest()
    return Entry(".gitattributes", oid, hashlib.sha256(ATTRIBUTES).hexdigest(), len(ATTRIBUTES), lfs=False)


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
        raise NotThere("repository", f"there is no repository {name[:200]!r}")
    return rows.repository(found)


def _refuse_another(connection: Connection, type_: Type, name: str) -> None:
    there = connection.scalar(select(repositories.c.name).where(_named(type_, name)))
    if there is not None:
        raise Conflict(f"there is a {type_} {there!r} already: take another name", name=there)


def _namespace(connection: Connection, name: str) -> tuple[int, str]:
    """The account that a repository of this name belongs to, and the name with the account's own spelling."""
    namespace, _, own = name.partition("/")
    query = select(accounts.c.id, accounts.c.name).where(accounts.c.folded == folded(namespace))
    found = connection.execute(query).one_or_none()
    if found is None:
        raise NotThere("account", f"there is no account {namespace!r} to move it to")
    return found.id, f"{found.name}/{own}"
