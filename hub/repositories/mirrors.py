"""Repositories that are mirrored from another hub: what of them is kept here.

They have tables of their own. A mirror may lack most of its files, which a repository of this hub never does, and
knowing the hash of one of its files gives nobody a right to it.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from kcard.hub.accounts.names import folded
from kcard.hub.records.account_tables import accounts
from kcard.hub.records.database import Database
from kcard.hub.records.mirror_tables import (
    mirror_access,
    mirror_commits,
    mirror_files,
    mirror_refs,
    mirrors,
)
from kcard.hub.records.repository_tables import repositories
from kcard.hub.records.utc import now, utc
from kcard.hub.refusals import Conflict, NotThere
from kcard.hub.repositories import blob_references, stored_trees
from kcard.hub.repositories.own_namespace import DEFAULT, INSTEAD
from kcard.hub.repositories.stored_trees import Stored
from kcard.hub.repositories.values import Entry, Type
from kcard.hub.store.blobs import Blobs

__all__ = ["Kept", "Mirror", "MirrorFile", "Mirrors", "Seen", "Size"]

MOST_REFS = 10_000  # revisions of a mirror that are remembered
Gate: TypeAlias = Literal["no", "auto", "manual"]
Sizes: TypeAlias = "list[Size]"


@dataclass(frozen=True)
class Mirror:
    """A mirrored repository.

    upstream  the URL of its only source
    open      whether everyone may read it there, as of `checked` (UTC)
    """

    id: int
    type: Type
    name: str
    upstream: str
    open: bool
    gated: Gate
    checked: datetime


@dataclass(frozen=True)
class Seen:
    """What upstream said of a repository at a revision. `about`: JSON values for clients; `files`: by path."""

    name: str
    sha: str
    open: bool
    gated: Gate
    about: Mapping[str, Any]
    files: Mapping[str, Entry]


@dataclass(frozen=True)
class Kept:
    """A commit that is kept: what upstream said of it, and its files by path."""

    sha: str
    about: Mapping[str, Any]
    files: Mapping[str, Entry]


@dataclass(frozen=True)
class MirrorFile:
    """A file of a mirror; `sha256` once it is stored. `error`: why it is not, with its HTTP `status`."""

    sha256: str | None
    status: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class Size:
    """A mirror with the number and bytes of its stored files."""

    mirror: Mirror
    files: int
    size: int


class Mirrors:
    """The mirrors of a hub."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database, self._blobs = database, blobs

    def local(self, type_: Type, name: str) -> bool:
        """Whether the name belongs to this hub: its namespace is an account here, or a repository has it."""
        with self._database.read() as connection:
            return _local(connection, type_, name)

    def find(self, type_: Type, name: str) -> Mirror | None:
        """The mirror of that name, in any case."""
        with self._database.read() as connection:
            return _find(connection, _named(type_, name))

    def keep(self, type_: Type, upstream: str, revision: str, seen: Seen, account: int | None) -> Mirror:
        """Keep what upstream said; `account`: the one whose token it was asked with. Raises Conflict if the name is
        taken here, or bound to another source.
        """
        at = now()
        with self._database.write() as connection:
            if _local(connection, type_, seen.name):
                raise Conflict(f"{seen.name} belongs to this hub and is not mirrored")
            state = {"open": seen.open, "gated": seen.gated, "checked": at}
            mirror = _find(connection, _named(type_, seen.name))
            if mirror is None:
                identity = {"type": type_, "name": seen.name, "folded": folded(seen.name)}
                namespace = folded(seen.name.partition("/")[0])
                row = identity | {"namespace": namespace, "upstream": upstream, "created": at} | state
                connection.execute(insert(mirrors).values(row))
            elif mirror.upstream != upstream:
                raise Conflict(f"{seen.name} is mirrored from {mirror.upstream}, not from {upstream}")
            else:
                connection.execute(update(mirrors).where(mirrors.c.id == mirror.id).values(state))
            mirror = _find(connection, _named(type_, seen.name))
            assert mirror is not None  # as just written
            _keep_commit(connection, mirror.id, seen)
            _keep_ref(connection, mirror.id, revision, seen.sha, at)
            if account is not None:
                _keep_access(connection, mirror.id, account, at)
            return mirror

    def close(self, mirror: Mirror) -> None:
        """Note that upstream no longer shows it to everyone."""
        with self._database.write() as connection:
            one = update(mirrors).where(mirrors.c.id == mirror.id)
            connection.execute(one.values(open=False, checked=now()))

    def revision(self, mirror: Mirror, revision: str) -> tuple[str, datetime | None] | None:
        """The commit of a revision and when it was asked for; None without a time: a commit, which never changes."""
        with self._database.read() as connection:
            mine = (mirror_commits.c.mirror_id == mirror.id, mirror_commits.c.sha == revision)
            if connection.scalar(select(mirror_commits.c.sha).where(*mine)) is not None:
                return revision, None
            here = (mirror_refs.c.mirror_id == mirror.id, mirror_refs.c.revision == revision)
            query = select(mirror_refs.c.sha, mirror_refs.c.checked).where(*here)
            row = connection.execute(query).one_or_none()
        return None if row is None else (row.sha, utc(row.checked))

    def commit(self, mirror: Mirror, sha: str) -> Kept:
        """A commit that is kept. Raises NotThere."""
        here = (mirror_commits.c.mirror_id == mirror.id, mirror_commits.c.sha == sha)
        with self._database.read() as connection:
            row = connection.execute(select(mirror_commits).where(*here)).one_or_none()
        if row is None:
            raise NotThere("revision", f"commit {sha} of {mirror.name} is not kept here")
        files, _ = stored_trees.changed(Stored(row.tree, delta=False))
        return Kept(sha, json.loads(row.about), files)

    def access(self, mirror: Mirror, account_id: int) -> datetime | None:
        """When upstream last let the account's own token read it; None: never."""
        here = (mirror_access.c.mirror_id == mirror.id, mirror_access.c.account_id == account_id)
        with self._database.read() as connection:
            at = connection.scalar(select(mirror_access.c.checked).where(*here))
        return None if at is None else utc(at)

    def deny(self, mirror: Mirror, account_id: int) -> None:
        """Note that upstream does not let the account's own token read it."""
        here = (mirror_access.c.mirror_id == mirror.id, mirror_access.c.account_id == account_id)
        with self._database.write() as connection:
            connection.execute(delete(mirror_access).where(*here))

    def refs(self, mirror: Mirror) -> tuple[Mapping[str, Any], datetime] | None:
        """The branches and tags as JSON, and when they were asked for."""
        with self._database.read() as connection:
            columns = select(mirrors.c.refs, mirrors.c.listed)
            row = connection.execute(columns.where(mirrors.c.id == mirror.id)).one_or_none()
        return None if row is None or row.refs is None else (json.loads(row.refs), utc(row.listed))

    def keep_refs(self, mirror: Mirror, refs: Mapping[str, Any]) -> None:
        """Keep the branches and tags."""
        with self._database.write() as connection:
            one = update(mirrors).where(mirrors.c.id == mirror.id)
            connection.execute(one.values(refs=json.dumps(refs), listed=now()))

    def file(self, mirror: Mirror, oid: str) -> MirrorFile | None:
        """A file by the oid that upstream names, if it is stored, or why it could not be; None: it is to be fetched."""
        here = (mirror_files.c.mirror_id == mirror.id, mirror_files.c.oid == oid)
        with self._database.read() as connection:
            row = connection.execute(select(mirror_files).where(*here)).one_or_none()
        if row is None or (row.error is not None and utc(row.until) < now()):
            return None
        if row.error is None and (row.sha256 is None or not self._blobs.holds(row.sha256)):
            return None
        return MirrorFile(row.sha256, row.status, row.error)

    def reserve(self, mirror: Mirror, oid: str, size: int, most: int) -> bool:
        """Count a file that is about to be fetched; False if all mirrors would then have more than `most` bytes."""
        here = (mirror_files.c.mirror_id == mirror.id, mirror_files.c.oid == oid)
        with self._database.write() as connection:
            connection.execute(delete(mirror_files).where(*here))
            if _used(connection) + size > most:
                return False
            connection.execute(insert(mirror_files).values(mirror_id=mirror.id, oid=oid, size=size))
        return True

    def stored(self, mirror: Mirror, oid: str, sha256: str) -> None:
        """Note that a file was verified. Call it before its blob is placed: gc keeps blobs that a row names."""
        self._set(mirror, oid, sha256=sha256)

    def failed(self, mirror: Mirror, oid: str, status: int, error: str, until: datetime) -> None:
        """Note why a file is not stored; until then nobody fetches it again."""
        self._set(mirror, oid, sha256=None, status=status, error=error, until=until, size=0)

    def _set(self, mirror: Mirror, oid: str, **values: Any) -> None:
        here = (mirror_files.c.mirror_id == mirror.id, mirror_files.c.oid == oid)
        with self._database.write() as connection:
            if connection.execute(update(mirror_files).where(*here).values(values)).rowcount:
                return
            if connection.scalar(select(mirrors.c.id).where(mirrors.c.id == mirror.id)) is not None:
                row = {"mirror_id": mirror.id, "oid": oid, "size": 0, **values}
                connection.execute(insert(mirror_files).values(row))

    def used(self) -> int:
        """Bytes of all mirrors: their files, and those that are being fetched, and their commits."""
        with self._database.read() as connection:
            return _used(connection)

    def list(self) -> Sizes:
        """All mirrors by name."""
        stored = (mirror_files.c.mirror_id == mirrors.c.id) & mirror_files.c.sha256.is_not(None)
        counts = (func.count(mirror_files.c.oid), func.coalesce(func.sum(mirror_files.c.size), 0))
        query = select(mirrors, *(count.label(name) for name, count in zip("nb", counts, strict=True)))
        query = query.join_from(mirrors, mirror_files, stored, isouter=True).group_by(mirrors.c.id)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return sorted((Size(_mirror(r), r.n, int(r.b)) for r in rows), key=lambda size: size.mirror.name)

    def remove(self, type_: Type, name: str) -> Mirror:
        """Forget a mirror and delete the files that nothing else refers to. Raises NotThere."""
        with self._database.write() as connection:
            mirror = _find(connection, _named(type_, name))
            if mirror is None:
                raise NotThere("repository", f"{type_} {name[:200]!r} is not mirrored here")
            mine = (mirror_files.c.mirror_id == mirror.id, mirror_files.c.sha256.is_not(None))
            candidates: Sequence[str] = connection.scalars(select(mirror_files.c.sha256).where(*mine)).all()
            connection.execute(delete(mirrors).where(mirrors.c.id == mirror.id))
        blob_references.discard(self._database, self._blobs, candidates)
        return mirror


def _local(connection: Connection, type_: Type, name: str) -> bool:
    namespace = folded(name.partition("/")[0])
    if namespace in {DEFAULT, INSTEAD}:  # for this hub's own cards, of which the first may be yet to come
        return True
    account = select(accounts.c.id).where(accounts.c.folded == namespace)
    same = (repositories.c.type == type_, repositories.c.folded == folded(name))
    found: Collection[Any] = (
        connection.scalar(account),
        connection.scalar(select(repositories.c.id).where(*same)),
    )
    return any(one is not None for one in found)


def _named(type_: Type, name: str) -> ColumnElement[bool]:
    return (mirrors.c.type == type_) & (mirrors.c.folded == folded(name))


def _find(connection: Connection, condition: ColumnElement[bool]) -> Mirror | None:
    row = connection.execute(select(mirrors).where(condition)).one_or_none()
    return None if row is None else _mirror(row)


def _mirror(row: Any) -> Mirror:
    return Mirror(row.id, row.type, row.name, row.upstream, row.open, row.gated, utc(row.checked))


def _keep_commit(connection: Connection, mirror_id: int, seen: Seen) -> None:
    here = (mirror_commits.c.mirror_id == mirror_id, mirror_commits.c.sha == seen.sha)
    if connection.scalar(select(mirror_commits.c.sha).where(*here)) is not None:
        return  # a commit never changes, whatever upstream says later
    tree, about = stored_trees.full(seen.files).content, json.dumps(seen.about)
    values = {"tree": tree, "about": about, "size": len(tree) + len(about)}
    connection.execute(insert(mirror_commits).values(mirror_id=mirror_id, sha=seen.sha, **values))


def _keep_ref(connection: Connection, mirror_id: int, revision: str, sha: str, at: datetime) -> None:
    here = (mirror_refs.c.mirror_id == mirror_id, mirror_refs.c.revision == revision)
    if (
        revision == sha
        or connection.execute(update(mirror_refs).where(*here).values(sha=sha, checked=at)).rowcount
    ):
        return
    mine = select(func.count()).where(mirror_refs.c.mirror_id == mirror_id)
    if (connection.scalar(mine) or 0) < MOST_REFS:
        row = {"mirror_id": mirror_id, "revision": revision, "sha": sha, "checked": at}
        connection.execute(insert(mirror_refs).values(row))


def _keep_access(connection: Connection, mirror_id: int, account_id: int, at: datetime) -> None:
    here = (mirror_access.c.mirror_id == mirror_id, mirror_access.c.account_id == account_id)
    if not connection.execute(update(mirror_access).where(*here).values(checked=at)).rowcount:
        row = {"mirror_id": mirror_id, "account_id": account_id, "checked": at}
        connection.execute(insert(mirror_access).values(row))


def _used(connection: Connection) -> int:
    tables = (mirror_files, mirror_commits)
    return sum(int(connection.scalar(select(func.coalesce(func.sum(t.c.size), 0))) or 0) for t in tables)
