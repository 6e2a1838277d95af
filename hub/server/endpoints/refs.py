"""Branches, tags, history and likes of a repository; checks of the client's permissions."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Forbidden
from kcard.hub.repositories.permissions import require_write
from kcard.hub.repositories.values import Commit
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    RepositoryDep,
    RequiredIdentity,
    require_download,
)
from kcard.hub.server.limits import IN_TURN
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading import repository_json
from kcard.hub.server.reading.pagination import next_page
from kcard.hub.server.reading.repository_json import ABSENT

__all__ = ["router"]

router = APIRouter(tags=["read"])

PAGE, MOST = 50, 100  # commits
LARGEST_PAGE = 1 << 20  # characters of commits with long messages


@router.get(
    "/api/{types}/{namespace}/{name}/refs",
    summary="List branches and tags",
    response_description="Names with their commits",
    responses=ABSENT,
)
def refs(hub: HubDep, repository: RepositoryDep) -> JSONResponse:
    """`pullRequests` and `converts` are always empty."""
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
    response_description="Newest first; Link has the next page",
    responses=ABSENT,
    dependencies=[IN_TURN],
)
def commits(
    request: Request,
    hub: HubDep,
    options: OptionsDep,
    repository: RepositoryDep,
    revision: Segment,
    p: Annotated[int, Query(ge=0, le=1_000_000, description="Page number, from 0")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
    expand: Annotated[list[str] | None, Query(alias="expand[]")] = None,
) -> JSONResponse:
    """At most 100 on a page. The next one starts with the parent of the last commit of this one."""
    sha = hub.refs.resolve(repository, revision)
    formatted = "formatted" in (expand or ())
    page = _up_to(LARGEST_PAGE, hub.commits.list(repository, sha, p, min(limit, MOST)))
    headers = {"X-Repo-Commit": sha}
    if page and page[-1].parent is not None:
        here = f"/api/{repository.type}s/{repository.name}/commits/{page[-1].parent}"
        headers |= next_page(request, options, here, p=0)
    return JSONResponse([repository_json.commit(commit, formatted) for commit in page], headers=headers)


def _up_to(largest: int, page: Sequence[Commit]) -> Sequence[Commit]:
    """The commits until their messages have `largest` characters, at least one."""
    sizes = accumulate(len(commit.title) + len(commit.message) for commit in page)
    return page[: max(1, bisect_right(list(sizes), largest))]


@router.get(
    "/api/{types}/{namespace}/{name}/auth-check",
    summary="Check that the client may download files",
    response_description="Allowed",
    responses={403: {"description": "Gated"}, **ABSENT},
)
def auth_check(hub: HubDep, repository: RepositoryDep, identity: OptionalIdentity) -> JSONResponse:
    """For a gated repository, this requires granted access."""
    require_download(hub, identity, repository)
    return JSONResponse({})


@router.get(
    "/api/{types}/{namespace}/{name}/auth-check/write",
    summary="Check that the client may write",
    response_description="Allowed",
    responses={403: {"description": "Not allowed"}, **ABSENT},
)
def auth_check_write(repository: RepositoryDep, identity: RequiredIdentity) -> JSONResponse:
    """With this token."""
    require_write(identity, repository)
    return JSONResponse({})


@router.get(
    "/api/{types}/{namespace}/{name}/discussions",
    summary="List discussions",
    response_description="An empty list",
    responses=ABSENT,
)
def discussions(repository: RepositoryDep) -> JSONResponse:  # noqa: ARG001 (checks that the client may read it)
    """Clients look for pull requests here before they convert weights. This hub has none."""
    return JSONResponse({"discussions": [], "count": 0, "start": 0, "numClosedDiscussions": 0})


@router.post(
    "/api/{types}/{namespace}/{name}/like",
    summary="Like a repository",
    response_description="Counted once",
    responses={403: {"description": "The token is read-only"}, **ABSENT},
)
def like(hub: HubDep, repository: RepositoryDep, identity: RequiredIdentity) -> JSONResponse:
    """For everyone who can read it, with a token that can write."""
    _require_writing_token(identity)
    hub.repositories.like(repository, identity.account_id)
    return JSONResponse({})


@router.delete(
    "/api/{types}/{namespace}/{name}/like",
    summary="Remove a like",
    response_description="Removed",
    responses={403: {"description": "The token is read-only"}, **ABSENT},
)
def unlike(hub: HubDep, repository: RepositoryDep, identity: RequiredIdentity) -> JSONResponse:
    """Does nothing if there is no like."""
    _require_writing_token(identity)
    hub.repositories.like(repository, identity.account_id, liked=False)
    return JSONResponse({})


def _require_writing_token(identity: Identity) -> None:
    if identity.scope == "read":
        raise Forbidden("a token with scope read can't like repositories: use one with scope write")
