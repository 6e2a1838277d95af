"""Branches, tags and history of a repository; who likes it; what whoever asks may do with it."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Forbidden
from kcard.hub.repositories.rights import require_write
from kcard.hub.server.asking import Asked, KnownIdentity, MaybeIdentity, Options, TheHub, base_url
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading import repository_json
from kcard.hub.server.reading.linked import next_page
from kcard.hub.server.reading.released import require_release
from kcard.hub.server.reading.repository_json import Answers

__all__ = ["router"]

router = APIRouter(tags=["read"])

PAGE = 50
ABSENT: Answers = {404: {"description": "No such repository or revision: X-Error-Code says which"}}


@router.get(
    "/api/{types}/{namespace}/{name}/refs",
    summary="List branches and tags",
    responses={200: {"description": "Each with its commit"}, **ABSENT},
)
def refs(hub: TheHub, repository: Asked) -> JSONResponse:
    """There are no pull requests and no converted copies here: those lists are empty."""
    return JSONResponse(
        {
            "branches": repository_json.references(hub.refs.branches(repository), "refs/heads/"),
            "tags": repository_json.references(hub.refs.tags(repository), "refs/tags/"),
            "converts": [],
            "pullRequests": [],
        }
    )


@router.get(
    "/api/{types}/{namespace}/{name}/commits/{revision}",
    summary="List the commits up to a revision",
    responses={200: {"description": "The newest first; Link has the next page"}, **ABSENT},
)
def commits(
    request: Request,
    hub: TheHub,
    options: Options,
    repository: Asked,
    revision: Segment,
    p: Annotated[int, Query(ge=0, le=1_000_000, description="The page, from 0")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
    expand: Annotated[list[str] | None, Query(alias="expand[]")] = None,
) -> JSONResponse:
    """Later pages are of the same commit, whatever comes meanwhile."""
    sha = hub.refs.resolve(repository, revision)
    page = hub.commits.list(repository, sha, p, limit)
    headers = {"X-Repo-Commit": sha}
    if page and page[-1].parent is not None:
        here = f"/api/{repository.type}s/{repository.name}/commits/{sha}"
        query = request.query_params.multi_items()
        headers |= next_page(base_url(request, options), here, query, p=p + 1)
    formatted = "formatted" in (expand or ())
    return JSONResponse([repository_json.commit(commit, formatted) for commit in page], headers=headers)


@router.get(
    "/api/{types}/{namespace}/{name}/auth-check",
    summary="Check that the files may be read",
    responses={200: {"description": "They may"}, 403: {"description": "Gated"}, **ABSENT},
)
def auth_check(hub: TheHub, repository: Asked, identity: MaybeIdentity) -> JSONResponse:
    """For a gated repository: whether access was granted."""
    require_release(hub, identity, repository)
    return JSONResponse({})


@router.get(
    "/api/{types}/{namespace}/{name}/auth-check/write",
    summary="Check that the repository may be changed",
    responses={200: {"description": "It may"}, 403: {"description": "It may not"}, **ABSENT},
)
def auth_check_write(repository: Asked, identity: KnownIdentity) -> JSONResponse:
    """By this token."""
    require_write(identity, repository)
    return JSONResponse({})


@router.get(
    "/api/{types}/{namespace}/{name}/discussions",
    summary="List discussions",
    responses={200: {"description": "There are none on this hub"}, **ABSENT},
)
def discussions(repository: Asked) -> JSONResponse:  # noqa: ARG001 # who may not read it gets no empty list either
    """Clients look here for pull requests before they convert weights; this hub has neither."""
    return JSONResponse({"discussions": [], "count": 0, "start": 0, "numClosedDiscussions": 0})


@router.post(
    "/api/{types}/{namespace}/{name}/like",
    summary="Like a repository",
    responses={
        200: {"description": "It counts once"},
        403: {"description": "The token may only read"},
        **ABSENT,
    },
)
def like(hub: TheHub, repository: Asked, identity: KnownIdentity) -> JSONResponse:
    """Anyone may who can read it, with a token that may write."""
    _require_writing_token(identity)
    hub.repositories.like(repository, identity.account_id)
    return JSONResponse({})


@router.delete(
    "/api/{types}/{namespace}/{name}/like",
    summary="Take a like back",
    responses={200: {"description": "Done"}, 403: {"description": "The token may only read"}, **ABSENT},
)
def unlike(hub: TheHub, repository: Asked, identity: KnownIdentity) -> JSONResponse:
    """Nothing happens where there is none."""
    _require_writing_token(identity)
    hub.repositories.unlike(repository, identity.account_id)
    return JSONResponse({})


def _require_writing_token(identity: Identity) -> None:
    if identity.scope == "read":
        raise Forbidden("a token of scope read may not like anything: use one of scope write")
