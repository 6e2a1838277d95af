"""Commits as they are written: prepared outside of any transaction, then put down in one short one."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from kcard.hub.records.repository_tables import commits, holdings, refs
from kcard.hub.records.utc import now
from kcard.hub.repositories import trees
from kcard.hub.repositories.values import BRANCH, Commit, Entry

__all__ = ["Draft", "drop", "head", "hold", "point", "prepare", "write"]


@dataclass(frozen=True)
class Draft:
    """A commit that is not written yet, and the text of its tree."""

    commit: Commit
    text: str


def prepare(
    identity: str, parent: str | None, tree: Mapping[str, Entry], title: str, message: str, author: str
) -> Draft:
    """A commit of that tree; its sha is the sha1 of canonical JSON of all that it says.

    `identity` is what makes equal commits of two repositories differ.
    """
    text, date = trees.dumps(tree), now()
    said = [identity, parent, text, title, message, author, date.isoformat()]
    sha = hashlib.sha1(json.dumps(said).encode(), usedforsecurity=False).hexdigest()
    return Draft(Commit(sha, parent, title, message, author, date), text)


def head(connection: Connection, repository_id: int, branch: str) -> str | None:
    """The commit that a branch points to; None where there is no such branch."""
    here = (refs.c.repository_id == repository_id, refs.c.kind == BRANCH, refs.c.name == branch)
    sha: str | None = connection.scalar(select(refs.c.sha).where(*here))
    return sha


def write(connection: Connection, repository_id: int, branch: str, draft: Draft) -> None:
    """Put a commit down and let the branch, which is made where there is none, point to it."""
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
    point(connection, repository_id, branch, commit.sha)


def point(connection: Connection, repository_id: int, branch: str, sha: str) -> None:
    """Let a branch, which is made where there is none, point to a commit."""
    here = (refs.c.repository_id == repository_id, refs.c.kind == BRANCH, refs.c.name == branch)
    if connection.execute(update(refs).where(*here).values(sha=sha)).rowcount == 0:
        new = {"repository_id": repository_id, "kind": BRANCH, "name": branch, "message": ""}
        connection.execute(insert(refs).values(sha=sha, **new))


def drop(connection: Connection, repository_id: int, sha: str) -> str | None:
    """Delete a commit and what points to it; those after it follow on the one before it, which is returned.

    The repository no longer holds the blobs that only this commit named.
    """
    mine = commits.c.repository_id == repository_id
    parent: str | None = connection.scalar(select(commits.c.parent).where(mine, commits.c.sha == sha))
    connection.execute(update(commits).where(mine, commits.c.parent == sha).values(parent=parent))
    connection.execute(delete(refs).where(refs.c.repository_id == repository_id, refs.c.sha == sha))
    connection.execute(delete(commits).where(mine, commits.c.sha == sha))
    texts = connection.scalars(select(commits.c.tree).where(mine))
    named = {entry.sha256 for text in texts for entry in trees.loads(text).values()}
    held = connection.scalars(select(holdings.c.sha256).where(holdings.c.repository_id == repository_id))
    for sha256 in set(held) - named:
        here = (holdings.c.repository_id == repository_id, holdings.c.sha256 == sha256)
        connection.execute(delete(holdings).where(*here))
    return parent


def hold(connection: Connection, repository_id: int, entries: Mapping[str, Entry]) -> bool:
    """Let the repository hold the blobs of these entries; whether any is new to it. `entries` by sha256."""
    here = (holdings.c.repository_id == repository_id, holdings.c.sha256.in_(entries))
    there = set(connection.scalars(select(holdings.c.sha256).where(*here)))
    rows = [
        {"repository_id": repository_id, "sha256": sha256, "size": entry.size}
        for sha256, entry in entries.items()
        if sha256 not in there
    ]
    if rows:
        connection.execute(insert(holdings), rows)
    return bool(rows)
