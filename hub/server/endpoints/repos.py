"""Repositories made, deleted, moved, hidden and gated."""

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts.names import check_repository, folded
from kcard.hub.refusals import Conflict, Invalid, Unsupported
from kcard.hub.repositories.rights import require_administer, require_create
from kcard.hub.repositories.values import Repository, Type
from kcard.hub.server.asking import KnownIdentity, Options, TheHub, base_url, found
from kcard.hub.server.writing.writable import Administered

__all__ = ["repository_url", "router"]

router = APIRouter(tags=["write"])

Visibility = Literal["public", "private"]


class Named(BaseModel):
    """A repository as clients name it here: its name and, unless it is the asker's own, its namespace."""

    name: str = Field(max_length=200)
    organization: str | None = Field(default=None, max_length=200)
    type: str | None = None


class Wanted(Named):
    """A repository to be made; `private` is what older clients send for `visibility`."""

    private: bool | None = None
    visibility: Visibility | None = None


class Move(BaseModel):
    """Where from and where to; both namespace/name."""

    fromRepo: str = Field(max_length=200)  # noqa: N815 # the protocol's
    toRepo: str = Field(max_length=200)  # noqa: N815
    type: str | None = None


class Settings(BaseModel):
    """What is to change; `private` is what older clients send for `visibility`."""

    private: bool | None = None
    visibility: Visibility | None = None
    gated: Literal["auto", "manual", False] | None = None


def repository_url(base: str, repository: Repository) -> str:
    """Where people look at a repository."""
    return (
        f"{base}/datasets/{repository.name}" if repository.type == "dataset" else f"{base}/{repository.name}"
    )


@router.post(
    "/api/repos/create",
    summary="Make a repository",
    responses={200: {"description": "Its URL"}, 409: {"description": "It is there already; its URL"}},
)
def create(
    wanted: Wanted, request: Request, hub: TheHub, options: Options, identity: KnownIdentity
) -> JSONResponse:
    """The 409 tells the URL too: clients that were told `exist_ok` read it there."""
    type_, name = _type(wanted.type), _full_name(wanted, identity.name)
    namespace = name.partition("/")[0]
    require_create(identity, namespace)
    account = hub.accounts.get(namespace)
    name = f"{account.name}/{name.partition('/')[2]}"  # in the namespace's own spelling
    base = base_url(request, options)
    try:
        repository = hub.repositories.create(
            type_, account.id, name, private=_private(wanted) or False, by=identity
        )
    except Conflict as conflict:
        there = hub.repositories.get(type_, conflict.name or name)
        return JSONResponse({"error": str(conflict), "url": repository_url(base, there)}, 409)
    hub.events.add(
        identity.name,
        "repository.created",
        repository.name,
        type=repository.type,
        private=repository.private,
    )
    url = repository_url(base, repository)
    return JSONResponse({"url": url, "name": repository.name, "id": str(repository.id)})


@router.delete(
    "/api/repos/delete",
    summary="Delete a repository with everything in it",
    responses={200: {"description": "It is gone"}, 404: {"description": "There is no such repository"}},
)
def delete(named: Named, hub: TheHub, identity: KnownIdentity) -> JSONResponse:
    """What versions it published goes with it."""
    repository = found(hub, _type(named.type), _full_name(named, identity.name), identity)
    require_administer(identity, repository)
    hub.repositories.delete(repository)
    hub.events.add(identity.name, "repository.deleted", repository.name, type=repository.type)
    return JSONResponse({})


@router.post(
    "/api/repos/move",
    summary="Give a repository another name, or another namespace",
    responses={200: {"description": "Done"}, 409: {"description": "There is one of that name"}},
)
def move(move: Move, hub: TheHub, identity: KnownIdentity) -> JSONResponse:
    """Asks for the right to administer it, and to make repositories where it goes."""
    repository = found(hub, _type(move.type), check_repository(move.fromRepo), identity)
    require_administer(identity, repository)
    namespace, _, name = check_repository(move.toRepo).partition("/")
    if folded(namespace) != folded(repository.namespace):
        require_create(identity, namespace)
    to = f"{hub.accounts.get(namespace).name}/{name}"
    hub.repositories.move(repository, to)
    hub.events.add(identity.name, "repository.moved", repository.name, type=repository.type, to=to)
    return JSONResponse({})


@router.put(
    "/api/{types}/{namespace}/{name}/settings",
    summary="Make a repository private or public, gated or open",
    responses={200: {"description": "How it is now"}},
)
def settings(
    settings: Settings, repository: Administered, hub: TheHub, identity: KnownIdentity
) -> JSONResponse:
    """Settings that are not named stay."""
    private, gated = _private(settings), settings.gated
    changed = hub.repositories.update(repository, private=private, gated="no" if gated is False else gated)
    hub.events.add(
        identity.name,
        "repository.updated",
        repository.name,
        type=repository.type,
        private=private,
        gated=gated,
    )
    visibility: Visibility = "private" if changed.private else "public"
    return JSONResponse(
        {
            "private": changed.private,
            "visibility": visibility,
            "gated": False if changed.gated == "no" else changed.gated,
        }
    )


def _private(asked: Wanted | Settings) -> bool | None:
    """Whether it shall be private; None: nothing was said."""
    return asked.private if asked.visibility is None else asked.visibility == "private"


def _type(word: str | None) -> Type:
    match word:
        case None | "model":
            return "model"
        case "dataset":
            return "dataset"
        case "space" | "bucket" | "kernel":
            raise Unsupported(f"this hub keeps models and datasets, no {word}s")
        case _:
            raise Invalid(f"type {word[:40]!r}: use model or dataset")


def _full_name(named: Named, owner: str) -> str:
    return check_repository(f"{named.organization or owner}/{named.name}")
