"""Branches and tags. A tag on a commit with a card publishes a version."""

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from kcard.hub.refusals import Unsupported
from kcard.hub.server.dependencies import HubDep, RequiredIdentity, WritableRepository
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.writing import tags

__all__ = ["router"]

router = APIRouter(tags=["write"])

BASE = "/api/{types}/{namespace}/{name}"
MAIN = "main"
NO_NUL = r"\A[^\x00]*\z"  # PostgreSQL can't store NUL


class Start(BaseModel):
    """Where a branch starts, by default at main."""

    startingPoint: str | None = Field(default=None, max_length=300, pattern=NO_NUL)  # noqa: N815 # the protocol's
    emptyBranch: bool = False  # noqa: N815
    overwrite: bool = False


class Tag(BaseModel):
    """A tag's name and message."""

    tag: str = Field(max_length=300)
    message: str | None = Field(default=None, max_length=20_000, pattern=NO_NUL)


@router.post(
    BASE + "/branch/{branch}",
    summary="Create a branch",
    response_description="Created",
    responses={409: {"description": "The name is taken"}},
)
def create_branch(
    branch: Segment,
    repository: WritableRepository,
    hub: HubDep,
    start: Annotated[Start | None, Body()] = None,
) -> JSONResponse:
    """startingPoint may be a branch, a tag or a commit."""
    start = start or Start()
    if start.emptyBranch or start.overwrite:
        raise Unsupported(
            "emptyBranch and overwrite are not supported: delete the branch and create it again"
        )
    sha = hub.refs.resolve(repository, start.startingPoint or MAIN)
    hub.refs.create_branch(repository, branch, sha)
    return JSONResponse({})


@router.delete(BASE + "/branch/{branch}", summary="Delete a branch", response_description="Deleted")
def delete_branch(branch: Segment, repository: WritableRepository, hub: HubDep) -> Response:
    """Any branch but main. Its commits stay, since tags and versions may refer to them."""
    hub.refs.delete_branch(repository, branch)
    return JSONResponse({})


@router.post(
    BASE + "/tag/{revision}",
    summary="Create a tag; if the commit has a card, publish it",
    responses={
        200: {"description": "The published version, if any"},
        400: {"description": "The card can't be published"},
        409: {"description": "The name is taken"},
    },
)
def create_tag(
    revision: Segment, tag: Tag, repository: WritableRepository, hub: HubDep, identity: RequiredIdentity
) -> JSONResponse:
    """The tag of a published version is immutable."""
    sha = hub.refs.resolve(repository, revision)
    published = tags.create_tag(hub, identity, repository, tag.tag, sha, tag.message or "")
    if published is None:
        return JSONResponse({})
    return JSONResponse({"version": published.version, "number": published.number})


@router.delete(
    BASE + "/tag/{tag}",
    summary="Delete a tag",
    response_description="Deleted",
    responses={403: {"description": "The tag published a version"}},
)
def delete_tag(
    tag: Segment, repository: WritableRepository, hub: HubDep, identity: RequiredIdentity
) -> Response:
    """Only administrators of the hub can delete a tag that published a version."""
    hub.refs.delete_tag(repository, tag, identity)
    hub.events.add(identity.name, "tag.deleted", repository.name, tag=tag)
    return JSONResponse({})
