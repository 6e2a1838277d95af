"""Which file a request wants, for someone who may have it."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import Depends

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import NotThere
from kcard.hub.repositories.values import Entry, Repository, Type
from kcard.hub.server.asking import MaybeIdentity, TheHub, found
from kcard.hub.server.middleware.raw_path import Rest, Segment
from kcard.hub.server.reading.downloads import counted
from kcard.hub.server.reading.recent_trees import RecentTrees, Trees
from kcard.hub.server.reading.released import require_release
from kcard.hub.shared import SharedHub

__all__ = ["DatasetFile", "ModelFile", "ResolvedFile"]


@dataclass(frozen=True)
class ResolvedFile:
    """A file of a commit; `counts`: whether its GETs are downloads."""

    repository: Repository
    commit: str
    entry: Entry
    counts: bool


def _model_file(
    hub: TheHub,
    trees: Trees,
    identity: MaybeIdentity,
    namespace: Segment,
    name: Segment,
    revision: Segment,
    path: Rest,
) -> ResolvedFile:
    return _resolved(hub, trees, identity, "model", f"{namespace}/{name}", revision, path)


def _dataset_file(
    hub: TheHub,
    trees: Trees,
    identity: MaybeIdentity,
    namespace: Segment,
    name: Segment,
    revision: Segment,
    path: Rest,
) -> ResolvedFile:
    return _resolved(hub, trees, identity, "dataset", f"{namespace}/{name}", revision, path)


ModelFile: TypeAlias = Annotated[ResolvedFile, Depends(_model_file)]
DatasetFile: TypeAlias = Annotated[ResolvedFile, Depends(_dataset_file)]


def _resolved(
    hub: SharedHub,
    trees: RecentTrees,
    identity: Identity | None,
    type_: Type,
    name: str,
    revision: str,
    path: str,
) -> ResolvedFile:
    repository = found(hub, type_, name, identity)
    require_release(hub, identity, repository)
    sha = hub.refs.resolve(repository, revision)
    tree = trees.get(repository, sha)
    entry = tree.get(path)
    if entry is None:
        # With the commit in the answer, clients remember that the file is not there and ask no more.
        raise NotThere(
            "entry", f"there is no file {path[:200]!r} in {repository.name} at {revision[:100]!r}", commit=sha
        )
    return ResolvedFile(repository, sha, entry, counts=counted(tree) == path)
