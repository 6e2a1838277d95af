"""How the trees of commits are stored: in full, or as a delta, the differences from the parent's tree.

A tree is read from the nearest full one and the deltas after it, which together are its chain. A commit so stores about
as many bytes as it changes. To keep chains short, a commit in the middle of a chain is rewritten in full once the
chain's deltas outweigh its full tree. It is an older commit than the new one, so that all branches that start after it
share it, and nobody can repeat the cost by starting branches.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, literal, select

from kcard.errors import HubError
from kcard.hub.records.repository_tables import commits
from kcard.hub.repositories import trees
from kcard.hub.repositories.trees import Tree
from kcard.hub.repositories.values import Entry

__all__ = ["Stored", "StoredTree", "apply", "changed", "chosen", "delta", "find", "full", "packed"]

LEVEL = 1  # of compression: hashes, most of a tree, hardly compress
# What a commit takes in the database besides its tree, in bytes. It counts for each delta of a chain, so that a chain
# of small deltas has at most one for each kilobyte of its full tree.
ROW = 1024
LONGEST = 1000  # commits of a chain
LARGEST = 1 << 28  # bytes of an uncompressed tree; more is no tree


@dataclass(frozen=True)
class Stored:
    """A stored tree: compressed JSON, of all files or of the differences from the parent's tree."""

    content: bytes
    delta: bool


@dataclass(frozen=True)
class StoredTree:
    """The tree of a commit, and its chain: commits with their stored trees, the full one first."""

    sha: str
    tree: Tree
    chain: Sequence[tuple[str, Stored]]


def full(tree: Mapping[str, Entry]) -> Stored:
    """A tree stored in full."""
    return Stored(packed(trees.dumps(tree)), delta=False)


def delta(before: Mapping[str, Entry], tree: Mapping[str, Entry]) -> Stored:
    """A tree stored as its differences from another: the changed files, and the paths that are gone."""
    new = {path: entry for path, entry in tree.items() if before.get(path) != entry}
    gone = sorted(before.keys() - tree.keys())
    text = f"[{trees.dumps(new)},{json.dumps(gone, separators=(',', ':'), ensure_ascii=False)}]"
    return Stored(packed(text), delta=True)


def packed(text: str) -> bytes:
    """The text of a tree as it is stored."""
    return zlib.compress(text.encode(), LEVEL)


def chosen(parent: StoredTree | None, tree: Mapping[str, Entry]) -> tuple[Stored, Mapping[str, Stored]]:
    """How to store the tree of a new commit, and the older commits to rewrite, by sha: at most one."""
    if parent is None:
        return full(tree), {}
    stored, first = delta(parent.tree, tree), len(parent.chain[0][1].content)
    weights = [_weight(link) for _, link in parent.chain[1:]]
    if len(weights) + 1 < LONGEST and sum(weights) + _weight(stored) <= first:
        return stored, {}
    whole = full(tree)
    if len(whole.content) <= _weight(stored):
        return whole, {}
    return stored, _middle(parent, weights)


def _middle(parent: StoredTree, weights: Sequence[int]) -> Mapping[str, Stored]:
    """The commit in the middle of the chain, by weight, stored in full; none in a chain without deltas."""
    half, passed = sum(weights) / 2, 0
    for place, weight in enumerate(weights, 1):
        passed += weight
        if passed >= half:
            sha = parent.chain[place][0]
            return {sha: full(_tree(sha, parent.chain[: place + 1]))}
    return {}


def _weight(stored: Stored) -> int:
    return len(stored.content) + ROW


def find(connection: Connection, repository_id: int, sha: str) -> StoredTree | None:
    """The tree of a commit; None: no such commit. Raises HubError if its chain is damaged."""
    rows = connection.execute(_chain(repository_id, sha)).all()
    if not rows:
        return None
    chain = [(row.sha, Stored(row.tree, row.delta)) for row in rows]
    if chain[0][1].delta:
        raise _damaged(sha, "a commit before it is missing")
    return StoredTree(sha, _tree(sha, chain), chain)


def _chain(repository_id: int, sha: str) -> Select[Any]:
    """The rows of a chain, the full tree first."""
    mine = commits.c.repository_id == repository_id
    columns = (commits.c.sha, commits.c.parent, commits.c.delta)
    start = select(*columns, literal(1).label("place")).where(mine, commits.c.sha == sha)
    chain = start.cte(recursive=True)
    before = (
        select(*columns, chain.c.place + 1)
        .join_from(chain, commits, mine & (commits.c.sha == chain.c.parent))
        .where(chain.c.delta, chain.c.place < LONGEST)
    )
    chain = chain.union_all(before)
    found = select(commits.c.sha, commits.c.delta, commits.c.tree)
    return found.join_from(chain, commits, mine & (commits.c.sha == chain.c.sha)).order_by(
        chain.c.place.desc()
    )


def _tree(sha: str, chain: Sequence[tuple[str, Stored]]) -> Tree:
    tree: Tree = {}
    for commit, stored in chain:
        try:
            apply(tree, stored)
        except HubError as error:
            raise _damaged(sha, f"commit {commit}: {error}") from error
    return {path: tree[path] for path in sorted(tree)}


def apply(tree: Tree, stored: Stored) -> Tree:
    """Change a tree by a delta, or fill an empty one; returns the files that were set. Raises HubError for damage."""
    new, gone = changed(stored)
    for path in gone:
        if tree.pop(path, None) is None:
            raise HubError(f"{path!r} is to be deleted, but missing")
    tree |= new
    return new


def changed(stored: Stored) -> tuple[Tree, Sequence[str]]:
    """The files that a stored tree sets, and the paths that it deletes. Raises HubError if it is damaged."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(stored.content, LARGEST)
        if not unpacking.eof:
            raise ValueError("it is incomplete or too large")
        if not stored.delta:
            return trees.loads(text), ()
        new, gone = json.loads(text)
        return {row[0]: Entry(*row) for row in new}, gone
    except (zlib.error, ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
        raise HubError(f"invalid stored tree: {error}") from error


def _damaged(sha: str, why: str) -> HubError:
    return HubError(f"the tree of commit {sha} is damaged ({why}): restore a backup of the hub")
