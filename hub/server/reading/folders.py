"""The folders of a commit, derived from its paths, with the ids of git's trees: equal folders have equal ids."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from kcard.hub.repositories.values import Entry

__all__ = ["Folder", "Folders", "Listed"]

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


class Folders:
    """The files of a commit by path, and its folders, which are derived when they are first used."""

    def __init__(self, files: Mapping[str, Entry]) -> None:
        self.files = files

    def get(self, path: str) -> Listed | None:
        """The file or folder at a path; the path of the root is empty."""
        return self.files.get(path) or self._folders.get(path)

    def inside(self, path: str, recursive: bool) -> list[Listed] | None:
        """The files and folders in a folder, sorted by path; `recursive`: at any depth. None: no such folder."""
        if path not in self._folders:
            return None
        start = f"{path}/" if path else ""
        first = bisect_left(self._paths, start)
        found: list[Listed] = []
        for here in islice(self._paths, first, None):
            if not here.startswith(start):
                break
            if here and (recursive or "/" not in here[len(start) :]):
                found.append(self.files.get(here) or self._folders[here])
        return found

    @cached_property
    def _folders(self) -> dict[str, Folder]:
        root = _Node()
        for path, entry in self.files.items():
            *parents, name = path.split("/")
            node = root
            for parent in parents:
                node = node.folders.setdefault(parent, _Node())
            node.files[name] = entry.oid
        return {folder.path: folder for folder in _named(root, "")}

    @cached_property
    def _paths(self) -> list[str]:
        return sorted([*self.files, *self._folders])


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
