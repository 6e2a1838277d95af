"""The folders of a commit, derived from the paths of its files, with the ids of git's trees."""

import hashlib
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from kcard.hub.values import Entry

FILE_MODE, FOLDER_MODE = b"100644", b"40000"


@dataclass(frozen=True)
class Folder:
    """A folder of a commit; `oid` is the sha1 of git's tree, so that equal folders have equal ids."""

    path: str
    oid: str


TreeItem: TypeAlias = Entry | Folder


class Folders:
    """The files of a commit by path, and its folders, which are derived on first use."""

    def __init__(self, files: Mapping[str, Entry]) -> None:
        self.files = files

    def get(self, path: str) -> TreeItem | None:
        """Return the file or folder at a path; the path of the root is empty."""
        return self.files.get(path) or self._folders.get(path)

    def inside(self, path: str, recursive: bool) -> list[TreeItem] | None:
        """Return the files and folders in a folder, sorted by path; `recursive`: at any depth. None: no such folder."""
        if path not in self._folders:
            return None
        start = f"{path}/" if path else ""
        first = bisect_left(self._paths, start)
        items: list[TreeItem] = []
        for inner in islice(self._paths, first, None):
            if not inner.startswith(start):
                break
            if inner and (recursive or "/" not in inner[len(start) :]):
                items.append(self.files.get(inner) or self._folders[inner])
        return items

    @cached_property
    def _folders(self) -> dict[str, Folder]:
        # What each folder contains, as rows of git's tree: what sorts it, mode, name and id.
        rows: dict[str, list[tuple[bytes, bytes, bytes, str]]] = {"": []}
        for path, entry in self.files.items():
            parent, _, name = path.rpartition("/")
            rows.setdefault(parent, []).append((name.encode(), FILE_MODE, name.encode(), entry.oid))
            while parent:
                parent = parent.rpartition("/")[0]
                if parent in rows:
                    break
                rows[parent] = []
        # The innermost folders first, since a folder's id depends on those of the folders in it.
        folders = {}
        for path in sorted(rows, key=lambda path: path.count("/") + bool(path), reverse=True):
            tree = bytearray()
            for _, mode, encoded_name, oid in sorted(rows[path]):
                tree += b"%s %s\0%s" % (mode, encoded_name, bytes.fromhex(oid))
            header = b"tree %d\0" % len(tree)
            folder = Folder(path, hashlib.sha1(header + tree, usedforsecurity=False).hexdigest())
            folders[path] = folder
            if path:
                parent, _, own = path.rpartition("/")
                # git sorts a folder as if its name ended with a slash
                rows[parent].append((own.encode() + b"/", FOLDER_MODE, own.encode(), folder.oid))
        return folders

    @cached_property
    def _paths(self) -> list[str]:
        return sorted([*self.files, *self._folders])
