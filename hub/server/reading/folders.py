"""The folders of a commit, derived from its paths, with the ids of git's trees: equal folders have equal ids."""

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
    """Every folder by its path; the path of the root is empty."""
    root = _Node()
    for path, entry in tree.items():
        *parents, name = path.split("/")
        node = root
        for parent in parents:
            node = node.folders.setdefault(parent, _Node())
        node.files[name] = entry.oid
    return {folder.path: folder for folder in _named(root, "")}


def _named(node: _Node, path: str) -> Iterator[Folder]:
    # git sorts a folder as if its name ended with a slash
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
    """The files and folders in a folder, sorted by path; `recursive`: at any depth. None: no such folder."""
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
