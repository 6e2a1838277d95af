"""Rows of commits, branches and holdings."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from kcard.hub.records.repository_tables import commits, holdings, refs
from kcard.hub.records.utc import now
from kcard.hub.refusals import NotThere
from kcard.hub.repositories import trees, usage
from kcard.hub.repositories.trees import Tree
from kcard.hub.repositories.values import BRANCH, Commit, Entry, Repository

__all__ = ["Draft", "drop", "head", "hold", "no_commit", "point", "prepare", "tree", "write"]


@dataclass(frozen=True)
class Draft:
    """An unwritten commit, and its tree as JSON."""

    commit: Commit
    text: str


def prepare(
    identity: str, parent: str | None, files: Mapping[str, Entry], title: str, message: str, author: str
) -> Draft:
    """A commit of that tree; its sha is the sha1 of its canonical JSON.

    `identity` makes equal commits of two repositories differ.
    """
    text, date = trees.dumps(files), now()
    said = [identity, parent, text, title, message, author, date.isoformat()]
    sha = hashlib.sha1(json.dumps(said).encode(), usedforsecurity=False).hexdigest()
    return Draft(Commit(sha, parent, title, message, author, date), text)


def head(connection: Connection, repository_id: int, branch: str) -> str | None:
    """The commit of a branch; None if there is no such branch."""
    here = (refs.c.repository_id == repository_id, refs.c.kind == BRANCH, refs.c.name == branch)
    sha: str | None = connection.scalar(select(refs.c.sha).where(*here))
    return sha


def tree(connection: Connection, repository: Repository, sha: str) -> Tree:
    """The files of a commit by path, sorted. Raises NotThere."""
    here = (commits.c.repository_id == repository.id, commits.c.sha == sha)
    text = connection.scalar(select(commits.c.tree).where(*here))
    if text is None:
        raise no_commit(repository, sha)
    return trees.loads(text)


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
        "tree": draft.text,
    }
    connection.execute(insert(commits).values(values))
    usage.add_tree(connection, repository_id, len(draft.text.encode()))
    point(connection, repository_id, branch, commit.sha)


def point(connection: Connection, repository_id: int, branch: str, sha: str) -> None:
    """Point a branch at a commit, creating the branch if needed."""
    here = (refs.c.repository_id == repository_id, refs.c.kind == BRANCH, refs.c.name == branch)
    if connection.execute(update(refs).where(*here).values(sha=sha)).rowcount == 0:
        new = {"repository_id": repository_id, "kind": BRANCH, "name": branch, "message": ""}
        connection.execute(insert(refs).values(sha=sha, **new))


def drop(connection: Connection, repository_id: int, sha: str) -> str | None:
    """Delete a commit, its refs and the holdings that only it needs. Its children get its parent, which is returned."""
    mine = commits.c.repository_id == repository_id
    gone = select(commits.c.parent, commits.c.tree).where(mine, commits.c.sha == sha)
    row = connection.execute(gone).one_or_none()
    if row is None:  # two versions may have had one commit
        return None
    usage.add_tree(connection, repository_id, -len(row.tree.encode()))
    connection.execute(update(commits).where(mine, commits.c.parent == sha).values(parent=row.parent))
    connection.execute(delete(refs).where(refs.c.repository_id == repository_id, refs.c.sha == sha))
    connection.execute(delete(commits).where(mine, commits.c.sha == sha))
    texts = connection.scalars(select(commits.c.tree).where(mine))
    named = {entry.sha256 for text in texts for entry in trees.loads(text).values()}
    here = holdings.c.repository_id == repository_id
    unneeded = set(connection.scalars(select(holdings.c.sha256).where(here))) - named
    usage.remove_blobs(connection, repository_id, unneeded)
    connection.execute(delete(holdings).where(here, holdings.c.sha256.in_(unneeded)))
    parent: str | None = row.parent
    return parent


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
