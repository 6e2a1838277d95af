"""The tree of a commit: its files by path. Applies operations to trees."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from kcard.hub.checks.paths import check_tree
from kcard.hub.refusals import NotThere
from kcard.hub.repositories.values import Add, Copy, Delete, DeleteFolder, Entry, Operation

__all__ = ["Tree", "after", "dumps", "loads", "size"]

Tree: TypeAlias = dict[str, Entry]


def dumps(tree: Mapping[str, Entry]) -> str:
    """Canonical JSON, sorted by path: equal trees have equal text."""
    rows = [[e.path, e.oid, e.sha256, e.size, e.lfs] for _, e in sorted(tree.items())]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


def loads(text: str | bytes) -> Tree:
    """The tree from the text of `dumps`, sorted by path."""
    return {row[0]: Entry(*row) for row in json.loads(text)}


def size(tree: Mapping[str, Entry]) -> int:
    """Bytes of all files of a tree."""
    return sum(entry.size for entry in tree.values())


def after(
    tree: Mapping[str, Entry],
    operations: Iterable[Operation],
    at: Callable[[str], Mapping[str, Entry]],
    head: str | None = None,
) -> Tree:
    """The tree after the operations.

    `at` returns the tree of another commit of the repository, for copies. Raises NotThere for a missing path to delete
    or copy, Invalid for conflicting paths, TooLarge for too many files.
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
                _delete_folder(new, path, head)
            case Copy(source, commit, path):
                found = at(commit).get(source)
                if found is None:
                    raise _absent(source, commit)
                new[path] = Entry(path, found.oid, found.sha256, found.size, found.lfs)
    check_tree(sorted(new))
    return {path: new[path] for path in sorted(new)}


def _delete_folder(tree: Tree, path: str, head: str | None) -> None:
    inside = [found for found in tree if found.startswith(path.rstrip("/") + "/")]
    if not inside:
        raise _absent(path, head)
    for found in inside:
        del tree[found]


def _absent(path: str, commit: str | None) -> NotThere:
    return NotThere("entry", f"{path!r} not found in the parent commit", commit=commit)
