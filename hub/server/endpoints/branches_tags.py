"""Branches and tags. A tag on a commit that holds a card publishes a version of it."""

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from kcard.hub.refusals import Unsupported
from kcard.hub.server.asking import KnownIdentity, TheHub
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.writing.writable import Writable

__all__ = ["router"]

router = APIRouter(tags=["write"])

BASE = "/api/{types}/{namespace}/{name}"
MAIN = "main"
NO_NUL = r"\A[^\x00]*\z"  # which PostgreSQL stores nowhere


class Start(BaseModel):
    """Where a branch begins: at the tip of main unless it is said."""

    startingPoint: str | None = Field(default=None, max_length=300, pattern=NO_NUL)  # noqa: N815 # the protocol's
    emptyBranch: bool = False  # noqa: N815
    overwrite: bool = False


class Tag(BaseModel):
    """A tag's name, and what it says."""

    tag: str = Field(max_length=300)
    message: str | None = Field(default=None, max_length=20_000, pattern=NO_NUL)


@router.post(
    BASE + "/branch/{branch}",
    summary="Make a branch",
    responses={200: {"description": "Done"}, 409: {"description": "There is one of that name"}},
)
def create_branch(
    branch: Segment,
    repository: Writable,
    hub: TheHub,
    start: Annotated[Start | None, Body()] = None,
) -> JSONResponse:
    """startingPoint may be a branch, a tag or a commit."""
    start = start or Start()
    if start.emptyBranch or start.overwrite:
        raise Unsupported(
            "this hub makes no empty branches and moves none: delete the branch, and make it anew"
        )
    sha = hub.refs.resolve(repository, start.startingPoint or MAIN)
    hub.refs.create_branch(repository, branch, sha)
    return JSONResponse({})


@router.delete(
    BASE + "/branch/{branch}", summary="Delete a branch", responses={200: {"description": "It is gone"}}
)
def delete_branch(branch: Segment, repository: Writable, hub: TheHub) -> Response:
    """Never main. Its commits stay: tags and versions may name them."""
    hub.refs.delete_branch(repository, branch)
    return JSONResponse({})


@router.post(
    BASE + "/tag/{revision}",
    summary="Make a tag; where the commit holds a card, publish it",
    responses={
        200: {"description": "Done; the version that was published, if one was"},
        400: {"description": "The card can't be published: why"},
        409: {"description": "There is a tag of that name"},
    },
)
def create_tag(
    revision: Segment, tag: Tag, repository: Writable, hub: TheHub, identity: KnownIdentity
) -> JSONResponse:
    """The tag of a published version stays where it is for good."""
    sha = hub.refs.resolve(repository, revision)
    message = tag.message or ""
    message = tag.message or ""
    published = hub.publications.publish(repository, tag.tag, sha, identity, message)
    if published is None:
        hub.refs.create_tag(repository, tag.tag, sha, message)
        return JSONResponse({})
    hub.events.add(
        identity.name,
        "card.published",
        repository.name,
        tag=tag.tag,
        version=published.version,
        number=published.number,
    )
    return JSONResponse({"version": published.version, "number": published.number})


@router.delete(
    BASE + "/tag/{tag}",
    summary="Delete a tag",
    responses={200: {"description": "It is gone"}, 403: {"description": "It published a version"}},
)
def delete_tag(tag: Segment, repository: Writable, hub: TheHub, identity: KnownIdentity) -> Response:
    """One that published a version is immutable: administrators of the hub alone can take it back."""
    hub.refs.delete_tag(repository, tag, identity)
    hub.events.add(identity.name, "tag.deleted", repository.name, tag=tag)
    return JSONResponse({})
