"""Branches and tags, and what a revision means."""

import re
from typing import TypeAlias

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from kcard.hub.accounts.identity import Identity
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import commits, publications, refs, versions
from kcard.hub.refusals import Conflict, Forbidden, Invalid, NotThere
from kcard.hub.repositories.rights import is_administrator
from kcard.hub.repositories.values import BRANCH, MAIN, TAG, Ref, Repository

__all__ = ["Refs", "check_ref", "put_tag"]

Found: TypeAlias = list[Ref]
LONGEST, MESSAGE = 250, 20_000
# What git refuses in a name, and what an address would not carry unharmed.
NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._/+@-]*[A-Za-z0-9_+-])?")
SHA = re.compile(r"[0-9a-f]{40}")
SHA_START = re.compile(r"[0-9a-f]{7,40}")


class Refs:
    """The branches and tags of a hub's repositories."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def resolve(self, repository: Repository, revision: str) -> str:
        """The sha of a branch's, a tag's or a commit's commit, sought in that order.

        A commit is named by its sha or 7 digits or more of its beginning. Raises NotThere, for a beginning of
        several commits too.
        """
        with self._database.read() as connection:
            here = (refs.c.repository_id == repository.id, refs.c.name == revision)
            found = dict(connection.execute(select(refs.c.kind, refs.c.sha).where(*here)).tuples().all())
            if sha := found.get(BRANCH) or found.get(TAG):
                return str(sha)
            if SHA_START.fullmatch(revision):
                of = (commits.c.repository_id == repository.id, commits.c.sha.startswith(revision))
                shas = list(connection.scalars(select(commits.c.sha).where(*of).limit(2)))
                if len(shas) == 1:
                    return str(shas[0])
        raise NotThere("revision", f"{repository.name} has no branch, tag or commit {revision[:LONGEST]!r}")

    def branches(self, repository: Repository) -> Found:
        """Every branch: main, then the others by name."""
        return sorted(self._list(repository, BRANCH), key=lambda ref: (ref.name != MAIN, ref.name))

    def tags(self, repository: Repository) -> Found:
        """Every tag by name."""
        return self._list(repository, TAG)

    def _list(self, repository: Repository, kind: str) -> Found:
        columns = (refs.c.name, refs.c.sha, refs.c.message)
        query = select(*columns).where(refs.c.repository_id == repository.id, refs.c.kind == kind)
        with self._database.read() as connection:
            return sorted((Ref(*row) for row in connection.execute(query)), key=lambda ref: ref.name)

    def create_branch(self, repository: Repository, name: str, sha: str, exist_ok: bool = False) -> None:
        """Make a branch at a commit of the repository; Conflict where it is there, unless `exist_ok`.

        Raises Invalid for a name that can't be one, NotThere for another sha.
        """
        check_ref(name, BRANCH)
        with self._database.write() as connection:
            if exist_ok and _exists(connection, repository, BRANCH, name):
                return
            _put(connection, repository, BRANCH, name, sha, "")

    def delete_branch(self, repository: Repository, name: str) -> None:
        """Delete a branch; its commits stay. NotThere where there is none, Invalid for main."""
        if name == MAIN:
            raise Invalid("branch 'main' is what a repository shows: it can't be deleted")
        with self._database.write() as connection:
            _delete(connection, repository, BRANCH, name)

    def create_tag(self, repository: Repository, name: str, sha: str, message: str = "") -> None:
        """Let a tag name a commit for good; Conflict where there is one of that name.

        A tag on a card is made by Publications.publish, which makes its version in the same moment.
        """
        with self._database.write() as connection:
            put_tag(connection, repository, name, sha, message)

    def delete_tag(self, repository: Repository, name: str, identity: Identity | None = None) -> None:
        """Delete a tag. One that published a version is deleted by administrators of the hub only; the version
        goes with the last of its tags. Raises NotThere, Forbidden.
        """
        with self._database.write() as connection:
            here = (publications.c.repository_id == repository.id, publications.c.tag == name)
            version = connection.scalar(select(publications.c.version_id).where(*here))
            if version is not None and not is_administrator(identity):
                raise Forbidden(
                    f"tag {name!r} published a version of {repository.name}, which is there to stay: publish a "
                    "newer one, or ask an administrator of the hub"
                )
            _delete(connection, repository, TAG, name)
            if version is not None:
                connection.execute(delete(publications).where(*here))
                _forget(connection, int(version))


def check_ref(name: str, what: str) -> str:
    """The name; Invalid for one that a branch or a tag can't have."""
    parts = name.split("/")
    odd = ".." in name or "@{" in name or any(_is_odd(part) for part in parts)
    if len(name) > LONGEST or not NAME.fullmatch(name) or odd or parts[0] == "refs" or SHA.fullmatch(name):
        raise Invalid(
            f"{what} {name[:LONGEST]!r}: use letters, digits, '.', '_', '-', '+', '@' and '/', at most {LONGEST}, "
            "as git allows them, and not the sha of a commit"
        )
    return name


def _is_odd(part: str) -> bool:
    return not part or part.startswith(".") or part.endswith((".", ".lock"))


def put_tag(connection: Connection, repository: Repository, name: str, sha: str, message: str) -> None:
    """Make a tag inside a transaction; raises what `Refs.create_tag` raises."""
    check_ref(name, TAG)
    if len(message) > MESSAGE:
        raise Invalid(f"a tag's message has at most {MESSAGE} characters: shorten it")
    _put(connection, repository, TAG, name, sha, message)


def _put(
    connection: Connection, repository: Repository, kind: str, name: str, sha: str, message: str
) -> None:
    # A branch and a tag of one name would let the branch say what the tag means.
    for other in (BRANCH, TAG):
        if _exists(connection, repository, other, name):
            raise Conflict(f"{repository.name} has a {other} {name!r} already: take another name")
    of = (commits.c.repository_id == repository.id, commits.c.sha == sha)
    if connection.scalar(select(commits.c.id).where(*of)) is None:
        raise NotThere("revision", f"{repository.name} has no commit {sha[:64]!r}")
    values = {"repository_id": repository.id, "kind": kind, "name": name, "sha": sha, "message": message}
    connection.execute(insert(refs).values(values))


def _delete(connection: Connection, repository: Repository, kind: str, name: str) -> None:
    if connection.execute(delete(refs).where(*_here(repository, kind, name))).rowcount == 0:
        raise NotThere("revision", f"{repository.name} has no {kind} {name[:LONGEST]!r}")


def _exists(connection: Connection, repository: Repository, kind: str, name: str) -> bool:
    return connection.scalar(select(refs.c.sha).where(*_here(repository, kind, name))) is not None


def _here(repository: Repository, kind: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return refs.c.repository_id == repository.id, refs.c.kind == kind, refs.c.name == name


def _forget(connection: Connection, version: int) -> None:
    """Delete a version that no tag publishes any more."""
    if connection.scalar(select(publications.c.id).where(publications.c.version_id == version)) is None:
        connection.execute(delete(versions).where(versions.c.id == version))
