"""Trees of commits that were read lately.

A client that downloads a repository asks for its files one by one, and each time the tree of the same commit is
needed. Of ten thousand files it takes 25 ms to read; a commit never changes, so it is read once.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from kcard.hub.repositories.commits import Commits
from kcard.hub.repositories.values import Entry, Repository
from kcard.hub.server.asking import TheHub

__all__ = ["RecentTrees", "Trees"]

# Files in all the trees that are kept, about 25 MB of memory; a tree of fewer than FEW is read as fast as it is found.
MOST, FEW = 40_000, 50


class RecentTrees:
    """The trees that were asked for last. For any thread; whoever asks has made sure that the commit is there."""

    def __init__(self, commits: Commits, most: int = MOST) -> None:
        self._commits, self._most = commits, most
        self._trees: OrderedDict[tuple[int, str], Mapping[str, Entry]] = OrderedDict()
        self._files = 0
        self._lock = threading.Lock()

    def get(self, repository: Repository, sha: str) -> Mapping[str, Entry]:
        """Every file of a commit by its path; not to be changed."""
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


async def _trees(request: Request, hub: TheHub) -> RecentTrees:
    state = request.app.state
    if not hasattr(state, "trees"):
        state.trees = RecentTrees(hub.commits)
    trees: RecentTrees = state.trees
    return trees


Trees: TypeAlias = Annotated[RecentTrees, Depends(_trees)]
