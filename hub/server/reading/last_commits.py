"""Which commit last changed a file or folder."""

from collections.abc import Collection, Mapping

from kcard.hub.repositories.commits import Commits
from kcard.hub.repositories.values import Commit, Entry, Repository
from kcard.hub.server.reading.folders import folders

__all__ = ["last_commits"]

# How far back the history is read: so many commits, and files in them all together. A longer look takes seconds.
MOST_COMMITS, MOST_ENTRIES = 100, 50_000


def last_commits(
    commits: Commits, repository: Repository, sha: str, paths: Collection[str]
) -> dict[str, Commit]:
    """The commit that last changed each path, at or before the one of that sha.

    A path that was last changed too long ago to be found quickly is left out.
    """
    found: dict[str, Commit] = {}
    history = commits.list(repository, sha, 0, MOST_COMMITS)
    after = _ids(commits.tree(repository, sha)) if history else {}
    read = 0
    for commit in history:
        before = {} if commit.parent is None else _ids(commits.tree(repository, commit.parent))
        found |= {path: commit for path in paths if path not in found and after.get(path) != before.get(path)}
        read += len(before)
        if read > MOST_ENTRIES or len(found) == len(paths):
            break
        after = before
    return found


def _ids(tree: Mapping[str, Entry]) -> dict[str, str]:
    files = {path: entry.oid for path, entry in tree.items()}
    return files | {path: folder.oid for path, folder in folders(tree).items()}
