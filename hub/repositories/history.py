"""Rows of commits, branches and holdings."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, update

from kcard.hub.records.repository_tables import commits, holdings, refs
from kcard.hub.records.utc import now
from kcard.hub.refusals import NotThere
from kcard.hub.repositories import stored_trees, trees, usage
from kcard.hub.repositories.stored_trees import Stored, StoredTree
from kcard.hub.repositories.trees import Tree
from kcard.hub.repositories.values import BRANCH, Commit, Entry, Repository

__all__ = ["Draft", "drop", "head", "hold", "no_commit", "point", "prepare", "stored_tree", "tree", "write"]


@dataclass(frozen=True)
class Draft:
    """An unwritten commit with its stored tree, and older commits to rewrite: see stored_trees.chosen."""

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
) -> Draft:
    """A commit of that tree after the commit `before`; its sha is the sha1 of its canonical JSON.

    `identity` makes equal commits of two repositories differ.
    """
    parent, text, date = None if before is None else before.sha, trees.dumps(files), now()
    said = [identity, parent, text, title, message, author, date.isoformat()]
    sha = hashlib.sha1(json.dumps(said).encode(), usedforsecurity=False).hexdigest()
    stored, rewritten = stored_trees.chosen(before, files)
    return Draft(Commit(sha, parent, title, message, author, date), stored, rewritten)


def head(connection: Connection, repository_id: int, branch: str) -> str | None:
    """The commit of a branch; None if there is no such branch."""
    here = (refs.c.repository_id == repository_id, refs.c.kind == BRANCH, refs.c.name == branch)
    sha: str | None = connection.scalar(select(refs.c.sha).where(*here))
    return sha


def tree(connection: Connection, repository: Repository, sha: str) -> Tree:
    """The files of a commit by path, sorted. Raises NotThere, and HubError if they are damaged."""
    return stored_tree(connection, repository, sha).tree


def stored_tree(connection: Connection, repository: Repository, sha: str) -> StoredTree:
    """As `tree`, with what it was read from, which `prepare` needs of a parent."""
    found = stored_trees.find(connection, repository.id, sha)
    if found is None:
        raise no_commit(repository, sha)
    return found


def no_commit(repository: Repository, sha: str) -> NotThere:
    """The error for an unknown commit."""
    return NotThere("revision", f"commit {sha[:64]!r} not found in {repository.name}")


def write(connection: Connection, repository_id: int, branch: str, draft: Draft) -> None:
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
    usage.add_tree(connection, repository_id, len(draft.stored.content) + sum(grown))


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
    grown = _detach(connection, repository_id, sha, parent)
    usage.add_tree(connection, repository_id, grown - int(row[1]))
    connection.execute(update(commits).where(mine, commits.c.parent == sha).values(parent=parent))
    connection.execute(delete(refs).where(refs.c.repository_id == repository_id, refs.c.sha == sha))
    connection.execute(delete(commits).where(mine, commits.c.sha == sha))
    rows = connection.execute(select(commits.c.tree, commits.c.delta).where(mine))
    named = {entry.sha256 for row in rows for entry in stored_trees.changed(Stored(*row))[0].values()}
    here = holdings.c.repository_id == repository_id
    unneeded = set(connection.scalars(select(holdings.c.sha256).where(here))) - named
    usage.remove_blobs(connection, repository_id, unneeded)
    connection.execute(delete(holdings).where(here, holdings.c.sha256.in_(unneeded)))
    return parent


def _detach(connection: Connection, repository_id: int, sha: str, parent: str | None) -> int:
    """Store the trees of a commit's children without reference to it; returns the bytes by which they grew."""
    of = commits.c.repository_id == repository_id
    children = connection.scalars(select(commits.c.sha).where(of, commits.c.parent == sha, commits.c.delta))
    before = None if parent is None else stored_trees.find(connection, repository_id, parent)
    grown = 0
    for child in list(children):
        found = stored_trees.find(connection, repository_id, child)
        assert found is not None  # as just read
        grown += _rewrite(connection, repository_id, child, stored_trees.chosen(before, found.tree)[0])
    return grown


def hold(connection: Connection, repository_id: int, entries: Mapping[str, Entry]) -> None:
    """Add the blobs of these entries, by sha256, to the repository's holdings."""
    here = (holdings.c.repository_id == repository_id, holdings.c.sha256.in_(entries))
    there = set(connection.scalars(select(holdings.c.sha256).where(*here)))
    owner = usage.namespace(connection, repository_id)
    rows = [
        {"repository_id": repository_id, "sha256": sha256, "size": entry.size, "namespace_id": owner}
        for sha256, entry in entries.items()
        if sha256 not in there
    ]
    if rows:
        connection.execute(insert(holdings), rows)
        usage.add_blobs(connection, repository_id, [str(row["sha256"]) for row in rows])
