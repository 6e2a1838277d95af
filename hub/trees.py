"""Trees of files, stored as differences.

A tree is read from the nearest full one and the deltas after it, which together form its chain. A commit thus stores
about as many bytes as it changes. To keep chains short, a commit in the middle of a chain is rewritten in full once the
chain's deltas outweigh its full tree. An older commit than the new one is rewritten, since all branches that start
after it share it: nobody can repeat the cost by starting branches.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from sqlalchemy import Select, bindparam, literal, select
from sqlalchemy.orm import Session

from kcard.errors import DamagedCard, HubError
from kcard.hub.checks.formats import kind_of
from kcard.hub.checks.paths import check_tree
from kcard.hub.db.models import Commit
from kcard.hub.errors import NotFound, Refused
from kcard.hub.storage import Blob
from kcard.hub.values import Add, Delete, DeleteFolder, Entry, Operation

# Entries of files in a commit, with git's object ids: text as regular files, everything else as large files.

# Forms of files that are regular files in a commit, if small.
TEXTS = frozenset(["text", "json", "jsonl", "yaml", "readme"])
MAX_TEXT_BYTES = 4_000_000  # bytes; larger text is a large file, as in uploads


def file_entry(path: str, blob: Blob, content: Callable[[str], bytes]) -> Entry:
    """Return the entry of a file. `content` returns the bytes of a path; damaged text becomes a large file."""
    try:
        is_text = blob.size <= MAX_TEXT_BYTES and kind_of(path, blob.size).form in TEXTS
    except Refused:  # a kind that clients can't upload
        is_text = False
    if is_text:
        try:
            return Entry(path, git_oid(content(path)), blob.sha256, blob.size, lfs=False)
        except DamagedCard:
            pass  # reported when the card is used
    return Entry(path, lfs_pointer_oid(blob.sha256, blob.size), blob.sha256, blob.size, lfs=True)


def git_oid(content: bytes) -> str:
    """Return the oid of a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def lfs_pointer_oid(sha256: str, size: int) -> str:
    """Return the oid of the LFS pointer of a file."""
    return git_oid(lfs_pointer(sha256, size))


def lfs_pointer(sha256: str, size: int) -> bytes:
    """Return the LFS pointer, which git stores in place of a large file."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


# The tree of a commit, its files by path, and operations on it.

Tree: TypeAlias = dict[str, Entry]


def dump_tree(tree: Mapping[str, Entry]) -> str:
    """Return canonical JSON, sorted by path: equal trees have equal text."""
    rows = [[e.path, e.oid, e.sha256, e.size, e.lfs] for _, e in sorted(tree.items())]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


def load_tree(text: str | bytes) -> Tree:
    """Return the tree from the text of `dump_tree`, sorted by path."""
    return {row[0]: Entry(*row) for row in json.loads(text)}


def total_size(tree: Mapping[str, Entry]) -> int:
    """Return the bytes of all files of a tree."""
    return sum(entry.size for entry in tree.values())


def apply_operations(
    tree: Mapping[str, Entry], operations: Iterable[Operation], head: str | None = None
) -> Tree:
    """Apply operations to a tree, that of the commit `head`, and return the new one.

    Raises NotFound for a missing path to delete, Invalid for conflicting paths, TooLarge for too many files.
    """
    new = dict(tree)
    for operation in operations:
        match operation:
            case Add(entry):
                new[entry.path] = entry
            case Delete(path):
                if new.pop(path, None) is None:
                    raise _absent(path, head)
            case DeleteFolder(path):
                inside = [file for file in new if file.startswith(path.rstrip("/") + "/")]
                if not inside:
                    raise _absent(path, head)
                for file in inside:
                    del new[file]
    check_tree(sorted(new))
    return {path: new[path] for path in sorted(new)}


def _absent(path: str, commit: str | None) -> NotFound:
    return NotFound("entry", f"{path!r} not found in the parent commit", commit=commit)


COMPRESSION_LEVEL = 1  # of compression: hashes, most of a tree, hardly compress
# Bytes of a commit in the database besides its tree. They count for each delta of a chain, so that a chain of small
# deltas has at most one for each kilobyte of its full tree.
ROW_BYTES = 1024
MAX_CHAIN_COMMITS = 1000  # commits of a chain
MAX_TREE_BYTES = 1 << 28  # bytes of an uncompressed tree; anything larger is not one


@dataclass(frozen=True)
class EncodedTree:
    """A stored tree: compressed JSON, of all files or of the differences from the parent's tree."""

    content: bytes
    delta: bool


@dataclass(frozen=True)
class CommitTree:
    """The tree of a commit, and its chain: commits with their stored trees, the full one first."""

    sha: str
    tree: Tree
    chain: Sequence[tuple[str, EncodedTree]]


def encode_full(tree: Mapping[str, Entry]) -> EncodedTree:
    """Encode a tree in full."""
    return EncodedTree(compress_tree(dump_tree(tree)), delta=False)


def encode_delta(before: Mapping[str, Entry], tree: Mapping[str, Entry]) -> EncodedTree:
    """Encode a tree as its differences from another: the changed files, and the paths that are gone."""
    new = {path: entry for path, entry in tree.items() if before.get(path) != entry}
    gone = sorted(before.keys() - tree.keys())
    text = f"[{dump_tree(new)},{json.dumps(gone, separators=(',', ':'), ensure_ascii=False)}]"
    return EncodedTree(compress_tree(text), delta=True)


def compress_tree(text: str) -> bytes:
    """Compress the text of a tree, as it is stored."""
    return zlib.compress(text.encode(), COMPRESSION_LEVEL)


def choose_storage(
    parent: CommitTree | None, tree: Mapping[str, Entry]
) -> tuple[EncodedTree, Mapping[str, EncodedTree]]:
    """Choose how to store the tree of a new commit, and which older commit to rewrite, by sha, if any."""
    if parent is None:
        return encode_full(tree), {}
    stored, first = encode_delta(parent.tree, tree), len(parent.chain[0][1].content)
    weights = [_weight(link) for _, link in parent.chain[1:]]
    if len(weights) + 1 < MAX_CHAIN_COMMITS and sum(weights) + _weight(stored) <= first:
        return stored, {}
    complete = encode_full(tree)
    if len(complete.content) <= _weight(stored):
        return complete, {}
    # Rewrite the commit in the middle of the chain, by weight; none in a chain without deltas.
    half, passed = sum(weights) / 2, 0
    for place, weight in enumerate(weights, 1):
        passed += weight
        if passed >= half:
            sha = parent.chain[place][0]
            return stored, {sha: encode_full(_build_tree(sha, parent.chain[: place + 1]))}
    return stored, {}


def _weight(stored: EncodedTree) -> int:
    return len(stored.content) + ROW_BYTES


def find_tree(session: Session, repository_id: int, sha: str) -> CommitTree | None:
    """Return the tree of a commit, None if there is no such commit. Raises HubError if its chain is damaged."""
    rows = session.execute(_chain(), {"repository": repository_id, "commit": sha}).all()
    if not rows:
        return None
    chain = [(row.sha, EncodedTree(row.tree, row.delta)) for row in rows]
    if chain[0][1].delta:
        raise _damaged(sha, "a commit before it is missing")
    return CommitTree(sha, _build_tree(sha, chain), chain)


@cache
def _chain() -> Select[str, bool, bytes]:
    """Return the query for the rows of the chain of a commit, the full tree first."""
    mine = Commit.repository_id == bindparam("repository")
    columns = (Commit.sha, Commit.parent, Commit.delta)
    start = select(*columns, literal(1).label("place")).where(mine, Commit.sha == bindparam("commit"))
    linked = start.cte(recursive=True)
    before = (
        select(*columns, linked.c.place + 1)
        .join_from(linked, Commit, mine & (Commit.sha == linked.c.parent))
        .where(linked.c.delta, linked.c.place < MAX_CHAIN_COMMITS)
    )
    linked = linked.union_all(before)
    links = select(Commit.sha, Commit.delta, Commit.tree)
    return links.join_from(linked, Commit, mine & (Commit.sha == linked.c.sha)).order_by(
        linked.c.place.desc()
    )


def _build_tree(sha: str, chain: Sequence[tuple[str, EncodedTree]]) -> Tree:
    tree: Tree = {}
    for commit, stored in chain:
        try:
            apply_encoded(tree, stored)
        except HubError as error:
            raise _damaged(sha, f"commit {commit}: {error}") from error
    return {path: tree[path] for path in sorted(tree)}


def apply_encoded(tree: Tree, stored: EncodedTree) -> Tree:
    """Change a tree by a delta, or fill an empty one; returns the files that were set. Raises HubError for damage."""
    new, gone = decode_tree(stored)
    for path in gone:
        if tree.pop(path, None) is None:
            raise HubError(f"{path!r} is to be deleted, but missing")
    tree |= new
    return new


def decode_tree(stored: EncodedTree) -> tuple[Tree, Sequence[str]]:
    """Return the files that a stored tree sets, and the paths that it deletes. Raises HubError if it is damaged."""
    unpacking = zlib.decompressobj()
    try:
        text = unpacking.decompress(stored.content, MAX_TREE_BYTES)
        if not unpacking.eof:
            raise ValueError("it is incomplete or too large")
        if not stored.delta:
            return load_tree(text), ()
        new, gone = json.loads(text)
        return {row[0]: Entry(*row) for row in new}, gone
    except (zlib.error, ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
        raise HubError(f"invalid stored tree: {error}") from error


def _damaged(sha: str, why: str) -> HubError:
    return HubError(f"the tree of commit {sha} is damaged ({why}): restore a backup of the hub")
