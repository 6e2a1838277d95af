"""Branches, tags, history and likes of a repository; checks of the client's permissions."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts import Identity
from kcard.hub.db.models import Commit
from kcard.hub.errors import Forbidden, Unsupported
from kcard.hub.permissions import require_write
from kcard.hub.server import responses
from kcard.hub.server.concurrency import EXPENSIVE
from kcard.hub.server.dependencies import (
    NO_NUL,
    HubDep,
    OptionalIdentity,
    OptionsDep,
    RepositoryDep,
    RequiredIdentity,
    Segment,
    WritableRepository,
    require_download,
)
from kcard.hub.server.responses import link_to_next_page
from kcard.hub.values import MAIN

router = APIRouter()

BASE = "/api/{types}/{namespace}/{name}"
PAGE, MAX_PAGE = 50, 100  # commits
MAX_PAGE_CHARACTERS = 1 << 20  # of commits with long messages


@router.get(f"{BASE}/refs", tags=["read"])
def refs(hub: HubDep, repository: RepositoryDep) -> JSONResponse:
    """List branches and tags. `pullRequests` and `converts` are always empty."""
    return JSONResponse(
        {
            "branches": responses.describe_refs(hub.refs.branches(repository), "refs/heads/"),
            "tags": responses.describe_refs(hub.refs.tags(repository), "refs/tags/"),
            "converts": [],
            "pullRequests": [],
        }
    )


@router.get(f"{BASE}/commits/{{revision}}", tags=["read"], dependencies=[EXPENSIVE])
def commits(
    request: Request,
    hub: HubDep,
    options: OptionsDep,
    repository: RepositoryDep,
    revision: Segment,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
    expand: Annotated[list[str] | None, Query(alias="expand[]")] = None,
) -> JSONResponse:
    """List the commits up to a revision, at most 100 on a page.

    The next page starts with the parent of the last commit of this one.
    """
    sha = hub.refs.resolve(repository, revision)
    page: list[Commit] = []
    size = 0
    for commit in hub.commits.list(repository, sha, min(limit, MAX_PAGE)):
        size += len(commit.title) + len(commit.message)
        if page and size > MAX_PAGE_CHARACTERS:
            break
        page.append(commit)
    headers = {"X-Repo-Commit": sha}
    if page and page[-1].parent is not None:
        here = f"/api/{repository.type}s/{repository.name}/commits/{page[-1].parent}"
        headers |= link_to_next_page(request, options, here)
    formatted = "formatted" in (expand or ())
    return JSONResponse([responses.describe_commit(commit, formatted) for commit in page], headers=headers)


@router.get(f"{BASE}/auth-check", tags=["read"])
def auth_check(hub: HubDep, repository: RepositoryDep, identity: OptionalIdentity) -> JSONResponse:
    """Check that the client may download files, which takes granted access to a gated repository."""
    require_download(hub, identity, repository)
    return JSONResponse({})


@router.get(f"{BASE}/auth-check/write", tags=["read"])
def auth_check_write(repository: RepositoryDep, identity: RequiredIdentity) -> JSONResponse:
    """Check that the client may write with this token."""
    require_write(identity, repository)
    return JSONResponse({})


@router.get(f"{BASE}/discussions", tags=["read"])
def discussions(repository: RepositoryDep) -> JSONResponse:  # noqa: ARG001 (checks that the client may read it)
    """List discussions: none. Clients look for pull requests here before they convert weights."""
    return JSONResponse({"discussions": [], "count": 0, "start": 0, "numClosedDiscussions": 0})


@router.post(f"{BASE}/like", tags=["write"])
def like(hub: HubDep, repository: RepositoryDep, identity: RequiredIdentity) -> JSONResponse:
    """Like a repository: for everyone who can read it, with a token that can write."""
    _require_writing_token(identity)
    hub.repositories.like(repository, identity.account_id)
    return JSONResponse({})


@router.delete(f"{BASE}/like", tags=["write"])
def unlike(hub: HubDep, repository: RepositoryDep, identity: RequiredIdentity) -> JSONResponse:
    """Remove a like, if there is one."""
    _require_writing_token(identity)
    hub.repositories.like(repository, identity.account_id, liked=False)
    return JSONResponse({})


def _require_writing_token(identity: Identity) -> None:
    if identity.scope == "read":
        raise Forbidden("a token with scope read can't like repositories: use one with scope write")


class BranchStart(BaseModel):
    """Where a branch starts, by default at main."""

    startingPoint: str | None = Field(default=None, max_length=300, pattern=NO_NUL)  # noqa: N815 # the protocol's
    emptyBranch: bool = False  # noqa: N815
    overwrite: bool = False


class Tag(BaseModel):
    """A tag's name and message."""

    tag: str = Field(max_length=300)
    message: str | None = Field(default=None, max_length=20_000, pattern=NO_NUL)


@router.post(f"{BASE}/branch/{{branch}}", tags=["write"])
def create_branch(
    branch: Segment,
    repository: WritableRepository,
    hub: HubDep,
    start: Annotated[BranchStart | None, Body()] = None,
) -> JSONResponse:
    """Create a branch. startingPoint may be a branch, a tag or a commit."""
    start = start or BranchStart()
    if start.emptyBranch or start.overwrite:
        raise Unsupported(
            "emptyBranch and overwrite are not supported: delete the branch and create it again"
        )
    sha = hub.refs.resolve(repository, start.startingPoint or MAIN)
    hub.refs.create_branch(repository, branch, sha)
    return JSONResponse({})


@router.delete(f"{BASE}/branch/{{branch}}", tags=["write"])
def delete_branch(branch: Segment, repository: WritableRepository, hub: HubDep) -> JSONResponse:
    """Delete any branch but main. Its commits stay, since tags and versions may refer to them."""
    hub.refs.delete_branch(repository, branch)
    return JSONResponse({})


@router.post(f"{BASE}/tag/{{revision}}", tags=["write"])
def create_tag(
    revision: Segment, tag: Tag, repository: WritableRepository, hub: HubDep, identity: RequiredIdentity
) -> JSONResponse:
    """Create a tag; if the commit has a card, publish it. The tag of a published version is immutable."""
    sha = hub.refs.resolve(repository, revision)
    message = tag.message or ""
    published = hub.publications.publish(repository, tag.tag, sha, identity, message)
    if published is None:
        hub.refs.create_tag(repository, tag.tag, sha, message)
        return JSONResponse({})
    version, number = published.version, published.number
    hub.events.add(
        identity.name, "card.published", repository.name, tag=tag.tag, version=version, number=number
    )
    return JSONResponse({"version": version, "number": number})


@router.delete(f"{BASE}/tag/{{tag}}", tags=["write"])
def delete_tag(
    tag: Segment, repository: WritableRepository, hub: HubDep, identity: RequiredIdentity
) -> JSONResponse:
    """Delete a tag. Only administrators of the hub can delete a tag that published a version."""
    hub.refs.delete_tag(repository, tag, identity)
    hub.events.add(identity.name, "tag.deleted", repository.name, tag=tag)
    return JSONResponse({})
