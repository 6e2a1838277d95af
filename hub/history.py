"""The history of repositories, branches and tags."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from kcard.hub import search_index, trees, uploads
from kcard.hub.accounts import Identity, folded
from kcard.hub.db.models import (
    commits,
    holdings,
    now,
    publications,
    published_tags,
    refs,
    repositories,
    versions,
)
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Forbidden, Invalid, NotThere, TooLarge
from kcard.hub.permissions import is_administrator
from kcard.hub.trees import Stored, StoredTree, Tree
from kcard.hub.values import BRANCH, MAIN, TAG, Commit, Entry, Ref, Repository

__all__ = [
    "CommitDraft",
    "Refs",
    "check_ref",
    "drop",
    "head",
    "hold",
    "no_commit",
    "point",
    "prepare",
    "put_tag",
    "require_unpublished",
    "stored_tree",
    "tree",
    "write",
]


# Rows of commits, branches and holdings.


@dataclass(frozen=True)
class CommitDraft:
    """An unwritten commit with its stored tree, and older commits to rewrite: see trees.choose_storage."""

    commit: Commit
    stored: Stored
    rewritten: Mapping[str, Stored]


def prepare(
    identity: str,
    before: StoredTree | None,
    files: Mapping[str, Entry],
    title: str,
    message: str,
    author: str,
) -> CommitDraft:
    """Make a commit of these files after the commit `before`; its sha is the sha1 of its canonical JSON.

    `identity` makes equal commits of two repositories differ.
    """
    parent, text, date = None if before is None else before.sha, trees.dumps(files), now()
    content = [identity, parent, text, title, message, author, date.isoformat()]
    sha = hashlib.sha1(json.dumps(content).encode(), usedforsecurity=False).hexdigest()
    stored, rewritten = trees.choose_storage(before, files)
    return CommitDraft(Commit(sha, parent, title, message, author, date), stored, rewritten)


def head(connection: Connection, repository_id: int, branch: str) -> str | None:
    """Return the commit of a branch; None if there is no such branch."""
    here = (refs.c.repository_id == repository_id, refs.c.kind == BRANCH, refs.c.name == branch)
    sha: str | None = connection.scalar(select(refs.c.sha).where(*here))
    return sha


def tree(connection: Connection, repository: Repository, sha: str) -> Tree:
    """Return the files of a commit by path, sorted. Raises NotThere, and HubError if they are damaged."""
    return stored_tree(connection, repository, sha).tree


def stored_tree(connection: Connection, repository: Repository, sha: str) -> StoredTree:
    """Return what `tree` does, with the chain that it was read from, which `prepare` needs of a parent."""
    commit_tree = trees.find(connection, repository.id, sha)
    if commit_tree is None:
        raise no_commit(repository, sha)
    return commit_tree


def no_commit(repository: Repository, sha: str) -> NotThere:
    """Return the error for an unknown commit."""
    return NotThere("revision", f"commit {sha[:64]!r} not found in {repository.name}")


def write(connection: Connection, repository_id: int, branch: str, draft: CommitDraft) -> None:
    """Write a commit and point the branch at it, creating the branch if needed."""
    commit = draft.commit
    values = {
        "repository_id": repository_id,
        "sha": commit.sha,
        "parent": commit.parent,
        "title": commit.title,
        "message": commit.message,
        "author": commit.author,
        "date": commit.date,
        "tree": draft.stored.content,
        "delta": draft.stored.delta,
    }
    connection.execute(insert(commits).values(values))
    point(connection, repository_id, branch, commit.sha)
    grown = [_rewrite(connection, repository_id, sha, stored) for sha, stored in draft.rewritten.items()]
    uploads.add_tree(connection, repository_id, len(draft.stored.content) + sum(grown))


def _rewrite(connection: Connection, repository_id: int, sha: str, stored: Stored) -> int:
    """Store the tree of a commit in another way; returns the bytes by which it grew."""
    here = (commits.c.repository_id == repository_id, commits.c.sha == sha)
    before = connection.scalar(select(func.length(commits.c.tree)).where(*here))
    if before is None:  # removed since
        return 0
    connection.execute(update(commits).where(*here).values(tree=stored.content, delta=stored.delta))
    return len(stored.content) - int(before)


def point(connection: Connection, repository_id: int, branch: str, sha: str) -> None:
    """Point a branch at a commit, creating the branch if needed."""
    here = (refs.c.repository_id == repository_id, refs.c.kind == BRANCH, refs.c.name == branch)
    if connection.execute(update(refs).where(*here).values(sha=sha)).rowcount == 0:
        new = {"repository_id": repository_id, "kind": BRANCH, "name": branch, "message": ""}
        connection.execute(insert(refs).values(sha=sha, **new))


def drop(connection: Connection, repository_id: int, sha: str) -> str | None:
    """Delete a commit, its refs and the holdings that only it needs. Its children get its parent, which is returned."""
    mine = commits.c.repository_id == repository_id
    gone = select(commits.c.parent, func.length(commits.c.tree)).where(mine, commits.c.sha == sha)
    row = connection.execute(gone).one_or_none()
    if row is None:  # two versions may have had one commit
        return None
    parent: str | None = row.parent
    # Store the trees of its children without reference to it.
    children = connection.scalars(select(commits.c.sha).where(mine, commits.c.parent == sha, commits.c.delta))
    before = None if parent is None else trees.find(connection, repository_id, parent)
    grown = 0
    for child in list(children):
        child_tree = trees.find(connection, repository_id, child)
        assert child_tree is not None  # as just read
        grown += _rewrite(connection, repository_id, child, trees.choose_storage(before, child_tree.tree)[0])
    uploads.add_tree(connection, repository_id, grown - int(row[1]))
    connection.execute(update(commits).where(mine, commits.c.parent == sha).values(parent=parent))
    connection.execute(delete(refs).where(refs.c.repository_id == repository_id, refs.c.sha == sha))
    connection.execute(delete(commits).where(mine, commits.c.sha == sha))
    rows = connection.execute(select(commits.c.tree, commits.c.delta).where(mine))
    named = {entry.sha256 for row in rows for entry in trees.decode(Stored(*row))[0].values()}
    here = holdings.c.repository_id == repository_id
    unneeded = set(connection.scalars(select(holdings.c.sha256).where(here))) - named
    uploads.remove_blobs(connection, repository_id, unneeded)
    connection.execute(delete(holdings).where(here, holdings.c.sha256.in_(unneeded)))
    return parent


def hold(connection: Connection, repository_id: int, entries: Mapping[str, Entry]) -> None:
    """Add the blobs of these entries, by sha256, to the repository's holdings."""
    here = (holdings.c.repository_id == repository_id, holdings.c.sha256.in_(entries))
    there = set(connection.scalars(select(holdings.c.sha256).where(*here)))
    owner = uploads.namespace(connection, repository_id)
    rows = [
        {"repository_id": repository_id, "sha256": sha256, "size": entry.size, "namespace_id": owner}
        for sha256, entry in entries.items()
        if sha256 not in there
    ]
    if rows:
        connection.execute(insert(holdings), rows)
        uploads.add_blobs(connection, repository_id, [str(row["sha256"]) for row in rows])


RefList: TypeAlias = list[Ref]
LONGEST, MESSAGE = 250, 20_000
MOST = 10_000  # branches and tags of a repository, which clients list at once
# A subset of git's rules that is safe in URLs.
NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._/+@-]*[A-Za-z0-9_+-])?")
SHA = re.compile(r"[0-9a-f]{40}")
SHA_START = re.compile(r"[0-9a-f]{7,40}")


class Refs:
    """The branches and tags of a hub's repositories."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def resolve(self, repository: Repository, revision: str) -> str:
        """Return the commit sha of a revision: a branch, a tag or a commit, in this order.

        A commit may be abbreviated to 7 digits. Raises NotThere, also for an ambiguous abbreviation.
        """
        with self._database.read() as connection:
            here = (refs.c.repository_id == repository.id, refs.c.name == revision)
            by_kind = dict(connection.execute(select(refs.c.kind, refs.c.sha).where(*here)).tuples().all())
            if sha := by_kind.get(BRANCH) or by_kind.get(TAG):
                return str(sha)
            if SHA_START.fullmatch(revision):
                of = (
                    commits.c.repository_id == repository.id,
                    commits.c.sha.between(revision, revision + "g"),
                )
                shas = list(connection.scalars(select(commits.c.sha).where(*of).limit(2)))
                if len(shas) == 1:
                    return str(shas[0])
        raise NotThere(
            "revision", f"branch, tag or commit {revision[:LONGEST]!r} not found in {repository.name}"
        )

    def branches(self, repository: Repository) -> RefList:
        """Return all branches: main, then the others by name."""
        return sorted(self._list(repository, BRANCH), key=lambda ref: (ref.name != MAIN, ref.name))

    def tags(self, repository: Repository) -> RefList:
        """Return all tags by name."""
        return self._list(repository, TAG)

    def _list(self, repository: Repository, kind: str) -> RefList:
        columns = (refs.c.name, refs.c.sha, refs.c.message)
        query = select(*columns).where(refs.c.repository_id == repository.id, refs.c.kind == kind)
        with self._database.read() as connection:
            return sorted((Ref(*row) for row in connection.execute(query)), key=lambda ref: ref.name)

    def create_branch(self, repository: Repository, name: str, sha: str, exist_ok: bool = False) -> None:
        """Create a branch at a commit of the repository.

        Raises Conflict if it exists, unless `exist_ok`; Invalid for an invalid name, NotThere for an unknown sha,
        TooLarge over MOST branches and tags.
        """
        check_ref(name, BRANCH)
        with self._database.write() as connection:
            here = _here(repository, BRANCH, name)
            if exist_ok and connection.scalar(select(refs.c.sha).where(*here)) is not None:
                return
            _put(connection, repository, BRANCH, name, sha, "")

    def delete_branch(self, repository: Repository, name: str) -> None:
        """Delete a branch; its commits stay. Raises NotThere, Invalid for main."""
        if name == MAIN:
            raise Invalid("can't delete the branch 'main'")
        with self._database.write() as connection:
            _delete(connection, repository, BRANCH, name)

    def create_tag(self, repository: Repository, name: str, sha: str, message: str = "") -> None:
        """Create a tag. Raises Conflict if the name is taken, TooLarge over MOST branches and tags.

        For a commit with a card, use Publications.publish, which also creates the version.
        """
        with self._database.write() as connection:
            put_tag(connection, repository, name, sha, message)

    def delete_tag(self, repository: Repository, name: str, identity: Identity | None = None) -> None:
        """Delete a tag. Raises NotThere, Forbidden.

        Only administrators of the hub may delete a tag that published a version; the last tag deletes the version.
        """
        with self._database.write() as connection:
            here = (publications.c.repository_id == repository.id, publications.c.tag == name)
            version = connection.scalar(select(publications.c.version_id).where(*here))
            if version is not None and not is_administrator(identity):
                raise Forbidden(
                    f"can't delete tag {name!r}: it published a version of {repository.name}; publish a newer one, or "
                    "ask an administrator of the hub"
                )
            _delete(connection, repository, TAG, name)
            if version is not None:
                connection.execute(delete(publications).where(*here))
                # The last tag deletes the version.
                left = select(publications.c.id).where(publications.c.version_id == version)
                if connection.scalar(left) is None:
                    connection.execute(delete(versions).where(versions.c.id == version))
                search_index.put_rows(connection, repository.id)


def check_ref(name: str, what: str) -> str:
    """Return the name, if it is valid for a branch or a tag. Raises Invalid."""
    parts = name.split("/")
    odd = (
        ".." in name
        or "@{" in name
        or any(not part or part.startswith(".") or part.endswith((".", ".lock")) for part in parts)
    )
    if len(name) > LONGEST or not NAME.fullmatch(name) or odd or parts[0] == "refs" or SHA.fullmatch(name):
        raise Invalid(
            f"invalid {what} name {name[:LONGEST]!r}: use at most {LONGEST} letters, digits, '.', '_', '-', '+', '@' "
            "and '/', by git's rules, and not the sha of a commit"
        )
    return name


def put_tag(
    connection: Connection, repository: Repository, name: str, sha: str, message: str, card: str | None = None
) -> None:
    """Create a tag inside a transaction; raises as `Refs.create_tag`. `card`: the sha256 of the card it publishes."""
    check_ref(name, TAG)
    if len(message) > MESSAGE:
        raise Invalid(f"tag message too long: the limit is {MESSAGE} characters")
    _put(connection, repository, TAG, name, sha, message, card)


def _put(
    connection: Connection,
    repository: Repository,
    kind: str,
    name: str,
    sha: str,
    message: str,
    card: str | None = None,
) -> None:
    require_unpublished(connection, repository.id, repository.name, {name: card})
    # A branch with the name of a tag would hide the tag.
    for other in (BRANCH, TAG):
        if connection.scalar(select(refs.c.sha).where(*_here(repository, other, name))) is not None:
            raise Conflict(f"{other} {name!r} already exists in {repository.name}: choose another name")
    count = select(func.count()).select_from(refs).where(refs.c.repository_id == repository.id)
    if (connection.scalar(count) or 0) >= MOST:
        raise TooLarge(f"{repository.name} has {MOST} branches and tags, the limit: delete some")
    of = (commits.c.repository_id == repository.id, commits.c.sha == sha)
    if connection.scalar(select(commits.c.id).where(*of)) is None:
        raise no_commit(repository, sha)
    values = {"repository_id": repository.id, "kind": kind, "name": name, "sha": sha, "message": message}
    connection.execute(insert(refs).values(values))


def require_unpublished(
    connection: Connection, repository_id: int, name: str, revisions: Mapping[str, str | None]
) -> None:
    """Raise Conflict if a revision, with the sha256 of the card that it publishes, was another published tag.

    What a name and a tag meant is recorded for ever, whatever becomes of the repository.
    """
    model = (repositories.c.id == repository_id, repositories.c.type == "model")
    if connection.scalar(select(repositories.c.id).where(*model)) is None:
        return
    before = select(published_tags.c.tag, published_tags.c.sha256).where(
        published_tags.c.name == folded(name)
    )
    for tag, sha256 in connection.execute(before):
        if tag in revisions and revisions[tag] != sha256:
            raise Conflict(
                f"{name}@{tag} was the card {sha256[:12]}…, and published tags are permanent: choose another name"
            )


def _delete(connection: Connection, repository: Repository, kind: str, name: str) -> None:
    if connection.execute(delete(refs).where(*_here(repository, kind, name))).rowcount == 0:
        raise NotThere("revision", f"{kind} {name[:LONGEST]!r} not found in {repository.name}")


def _here(repository: Repository, kind: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return refs.c.repository_id == repository.id, refs.c.kind == kind, refs.c.name == name
