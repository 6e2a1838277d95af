"""The folders of a commit: what lies in them, and what git would call them.

A commit keeps its files by path, without folders. Here they are made of the paths, with the ids that git would give
their trees, so that equal folders have equal ids.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kcard.hub.repositories.values import Entry

__all__ = ["Folder", "Listed", "contents", "folders"]

FILE_MODE, FOLDER_MODE = b"100644", b"40000"


@dataclass(frozen=True)
class Folder:
    """A folder of a commit; `oid` is the sha1 of git's tree."""

    path: str
    oid: str


Listed: TypeAlias = Entry | Folder


@dataclass
class _Node:
    files: dict[str, str] = field(default_factory=dict)
    folders: "dict[str, _Node]" = field(default_factory=dict)


def folders(tree: Mapping[str, Entry]) -> dict[str, Folder]:
    """Every folder by its path, the root as the empty path."""
    root = _Node()
    for path, entry in tree.items():
        *parents, name = path.split("/")
        node = root
        for parent in parents:
            node = node.folders.setdefault(parent, _Node())
        node.files[name] = entry.oid
    return {folder.path: folder for folder in _named(root, "")}


def _named(node: _Node, path: str) -> Iterator[Folder]:
    # git sorts a folder as if its name ended in a slash
    rows = [(name.encode(), FILE_MODE, name, oid) for name, oid in node.files.items()]
    for name, inner in node.folders.items():
        *below, folder = _named(inner, f"{path}/{name}" if path else name)
        yield from below
        yield folder
        rows.append((name.encode() + b"/", FOLDER_MODE, name, folder.oid))
    body = b"".join(
        b"%s %s\0%s" % (mode, name.encode(), bytes.fromhex(oid)) for _, mode, name, oid in sorted(rows)
    )
    yield Folder(path, hashlib.sha1(b"tree %d\0" % len(body) + body, usedforsecurity=False).hexdigest())


def contents(tree: Mapping[str, Entry], path: str, recursive: bool) -> list[Listed] | None:
    """What lies in a folder, by path: files and folders, with what is in these where `recursive`.

    None where the commit has no such folder; the root, an empty path, is always there.
    """
    every = folders(tree)
    if path not in every:
        return None
    start = f"{path}/" if path else ""
    items: list[Listed] = [*every.values(), *tree.values()]
    inside = [
        item
        for item in items
        if item.path.startswith(start)
        and item.path != path
        and (recursive or "/" not in item.path[len(start) :])
    ]
    return sorted(inside, key=lambda item: item.path)
