"""A cache of commit trees.

Clients download a repository file by file, and each request needs the tree of the same commit. Reading a tree of ten
thousand files takes 25 ms.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from kcard.hub.repositories.commits import Commits
from kcard.hub.repositories.values import Entry, Repository
from kcard.hub.server.dependencies import HubDep

__all__ = ["RecentTrees", "TreesDep"]

# Files in all cached trees, about 25 MB of memory. Reading a tree of fewer than FEW files is as fast as the cache.
MOST, FEW = 40_000, 50


class RecentTrees:
    """The trees that were used last. Thread-safe."""

    def __init__(self, commits: Commits, most: int = MOST) -> None:
        self._commits, self._most = commits, most
        self._trees: OrderedDict[tuple[int, str], Mapping[str, Entry]] = OrderedDict()
        self._files = 0
        self._lock = threading.Lock()

    def get(self, repository: Repository, sha: str) -> Mapping[str, Entry]:
        """The files of an existing commit by path; read-only."""
        key = (repository.id, sha)
        with self._lock:
            if key in self._trees:
                self._trees.move_to_end(key)
                return self._trees[key]
        tree = self._commits.tree(repository, sha)
        if FEW <= len(tree) <= self._most:
            self._keep(key, tree)
        return tree

    def _keep(self, key: tuple[int, str], tree: Mapping[str, Entry]) -> None:
        with self._lock:
            if key not in self._trees:
                self._trees[key] = tree
                self._files += len(tree)
            while self._files > self._most:
                self._files -= len(self._trees.popitem(last=False)[1])


async def _trees(request: Request, hub: HubDep) -> RecentTrees:
    state = request.app.state
    if not hasattr(state, "trees"):
        state.trees = RecentTrees(hub.commits)
    trees: RecentTrees = state.trees
    return trees


TreesDep: TypeAlias = Annotated[RecentTrees, Depends(_trees)]
