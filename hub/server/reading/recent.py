"""What the requests of a worker share: the trees, descriptions, manifests and READMEs that were read last."""

from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from kcard.hub.server.reading.details import Details
from kcard.hub.server.reading.manifests import Manifests
from kcard.hub.server.reading.readmes import Readmes
from kcard.hub.server.reading.recent_trees import RecentTrees
from kcard.hub.shared import SharedHub

__all__ = ["Recent", "RecentDep"]


class Recent:
    """The caches of a worker, which take 60 MB at most."""

    def __init__(self, hub: SharedHub) -> None:
        self.trees = RecentTrees(hub.commits)
        self.details = Details(hub, self.trees)
        self.manifests = Manifests(hub.blobs)
        self.readmes = Readmes(hub.blobs)


async def _recent(request: Request) -> Recent:
    recent: Recent = request.app.state.recent
    return recent


RecentDep: TypeAlias = Annotated[Recent, Depends(_recent)]
