"""A cache of commit trees.

Clients download a repository file by file, and each request needs the tree of the same commit. Reading a tree of ten
thousand files takes 25 ms.
"""

from collections.abc import Mapping
from typing import TypeAlias

from kcard.hub.repositories.commits import Commits
from kcard.hub.repositories.values import Entry, Repository
from kcard.hub.server.reading.folders import Folders
from kcard.hub.server.reading.sized_cache import SizedCache

__all__ = ["FEW", "RecentTrees"]

# Files in all cached trees, about 25 MB of memory. Reading a tree of fewer than FEW files is as fast as the cache.
MOST, FEW = 40_000, 50
Key: TypeAlias = tuple[int, str]


class RecentTrees:
    """The trees that were used last, and their folders. Thread-safe."""

    def __init__(self, commits: Commits, most: int = MOST) -> None:
        self._commits = commits
        self._trees: SizedCache[Key, Folders] = SizedCache(most)

    def get(self, repository: Repository, sha: str) -> Mapping[str, Entry]:
        """The files of an existing commit by path; read-only."""
        return self.folders(repository, sha).files

    def folders(self, repository: Repository, sha: str) -> Folders:
        """The files of an existing commit with their folders."""
        key = (repository.id, sha)
        found = self._trees.get(key)
        if found is None:
            found = Folders(self._commits.tree(repository, sha))
            if len(found.files) >= FEW:
                self._trees.put(key, found, len(found.files))
        return found
