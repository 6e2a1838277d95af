"""What the repositories of an account take up."""

from collections.abc import Iterator
from typing import get_args

from fastapi import APIRouter
from starlette.responses import JSONResponse

from kcard.hub.accounts.identity import Identity
from kcard.hub.repositories.listing import MOST, ListQuery
from kcard.hub.repositories.values import Repository, Type
from kcard.hub.server.asking import KnownIdentity, TheHub
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading.repository_json import Answers, Json, time
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["read"])

ANSWERS: Answers = {
    200: {"description": "Each with the bytes of the files of its branch main, the largest first"},
    401: {"description": "No token, or one that is not valid"},
}


@router.get(
    "/api/settings/repositories", summary="List one's own repositories with their size", responses=ANSWERS
)
def own(hub: TheHub, identity: KnownIdentity) -> JSONResponse:
    """Models and datasets."""
    return _sizes(hub, identity.name, identity)


@router.get(
    "/api/organizations/{organisation}/settings/repositories",
    summary="List the repositories of an organisation with their size",
    responses=ANSWERS | {404: {"description": "There is no such organisation"}},
)
def of(hub: TheHub, identity: KnownIdentity, organisation: Segment) -> JSONResponse:
    """Those that whoever asks may read."""
    return _sizes(hub, hub.accounts.get(organisation).name, identity)


def _sizes(hub: SharedHub, author: str, identity: Identity) -> JSONResponse:
    found = sorted(_of(hub, author, identity), key=lambda repository: -repository.size)
    total = sum(repository.size for repository in found)
    return JSONResponse([_size(repository, total) for repository in found])


def _of(hub: SharedHub, author: str, identity: Identity) -> Iterator[Repository]:
    for kind in get_args(Type):
        cursor: str | None = None
        while True:
            query = ListQuery(kind, author=author, limit=MOST, cursor=cursor)
            page, cursor = hub.listing.page(query, identity)
            yield from page
            if cursor is None:
                break


def _size(repository: Repository, total: int) -> Json:
    return {
        "id": repository.name,
        "type": repository.type,
        "updatedAt": time(repository.modified),
        "visibility": "private" if repository.private else "public",
        "storage": repository.size,
        "storagePercent": round(100 * repository.size / total, 2) if total else 0,
    }
