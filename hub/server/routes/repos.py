"""Create, move and delete repositories, change their settings."""

import json
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts import Identity, check_repository_name, fold_name
from kcard.hub.checks import metadata
from kcard.hub.db.models import Gate, Repository, RepositoryType
from kcard.hub.errors import Conflict, Invalid, Refused, Unsupported
from kcard.hub.permissions import require_administer, require_create
from kcard.hub.server.dependencies import (
    AdministeredRepository,
    HubDep,
    OptionsDep,
    RequiredIdentity,
    Visibility,
    base_url,
    get_repository,
)
from kcard.hub.server.limits import ExpensiveTurn, lift_body_limit
from kcard.hub.services import HubServices

router = APIRouter(tags=["write"])


class VisibilityFields(BaseModel):
    """`private` is what older clients send for `visibility`."""

    private: bool | None = None
    visibility: Visibility | None = None

    @property
    def makes_private(self) -> bool | None:
        """None: unchanged."""
        return self.private if self.visibility is None else self.visibility == "private"


class RepositoryName(BaseModel):
    """A repository by name and namespace (default: the client's own)."""

    name: str = Field(max_length=200)
    organization: str | None = Field(default=None, max_length=200)
    type: str | None = None


class NewRepository(RepositoryName, VisibilityFields):
    """A repository to create."""


class Move(BaseModel):
    """The old and the new namespace/name."""

    fromRepo: str = Field(max_length=200)  # noqa: N815 # the protocol's
    toRepo: str = Field(max_length=200)  # noqa: N815
    type: str | None = None


class RepositorySettings(VisibilityFields):
    """The settings to change."""

    gated: Literal["auto", "manual", False] | None = None


def repository_url(base: str, repository: Repository) -> str:
    """Return the URL of a repository's page."""
    folder = "/datasets" if repository.type == "dataset" else ""
    return f"{base}{folder}/{repository.name}"


@router.post(
    "/api/repos/create",
    summary="Create a repository",
    response_description="Its URL",
    responses={409: {"description": "It exists already, at this URL"}},
)
def create(
    new: NewRepository, request: Request, hub: HubDep, options: OptionsDep, identity: RequiredIdentity
) -> JSONResponse:
    """A 409 has the URL too: clients read it there with `exist_ok`."""
    type_, name = _parse_type(new.type), _full_name(new, identity.name)
    base = base_url(request, options)
    try:
        private = options.visibility == "private" if new.makes_private is None else new.makes_private
        repository = create_repository(hub, identity, type_, name, private=private)
    except Conflict as conflict:
        there = hub.repositories.get(type_, conflict.name or name)
        return JSONResponse({"error": str(conflict), "url": repository_url(base, there)}, 409)
    url = repository_url(base, repository)
    return JSONResponse({"url": url, "name": repository.name, "id": str(repository.id)})


@router.delete(
    "/api/repos/delete",
    summary="Delete a repository and all its contents",
    response_description="Deleted",
    responses={404: {"description": "No such repository"}},
)
def delete(named: RepositoryName, hub: HubDep, identity: RequiredIdentity) -> JSONResponse:
    """This includes its published versions."""
    repository = get_repository(hub, _parse_type(named.type), _full_name(named, identity.name), identity)
    delete_repository(hub, identity, repository)
    return JSONResponse({})


@router.post(
    "/api/repos/move",
    summary="Move or rename a repository",
    response_description="Moved",
    responses={409: {"description": "The new name is taken"}},
)
def move(move: Move, hub: HubDep, identity: RequiredIdentity) -> JSONResponse:
    """For administrators of the repository who may create repositories in the new namespace."""
    repository = get_repository(hub, _parse_type(move.type), check_repository_name(move.fromRepo), identity)
    move_repository(hub, identity, repository, move.toRepo)
    return JSONResponse({})


@router.put(
    "/api/{types}/{namespace}/{name}/settings",
    summary="Change the visibility or gating of a repository",
    response_description="The new settings",
)
def settings(
    settings: RepositorySettings, repository: AdministeredRepository, hub: HubDep, identity: RequiredIdentity
) -> JSONResponse:
    """Omitted settings stay."""
    gated = "no" if settings.gated is False else settings.gated
    changed = change_settings(hub, identity, repository, private=settings.makes_private, gated=gated)
    visibility: Visibility = "private" if changed.private else "public"
    return JSONResponse(
        {
            "private": changed.private,
            "visibility": visibility,
            "gated": False if changed.gated == "no" else changed.gated,
        }
    )


def create_repository(
    hub: HubServices, identity: Identity, type_: RepositoryType, name: str, *, private: bool
) -> Repository:
    """Create namespace/name. Raises Forbidden, and as Repositories.create."""
    namespace, _, own = check_repository_name(name).partition("/")
    require_create(identity, namespace)
    account = hub.accounts.get(namespace)
    full = f"{account.name}/{own}"  # with the case of the account's name
    repository = hub.repositories.create(type_, account.id, full, private=private, by=identity)
    hub.events.add(identity.name, "repository.created", repository.name, type=type_, private=private)
    return repository


def delete_repository(hub: HubServices, identity: Identity, repository: Repository) -> None:
    """Delete a repository. Raises Forbidden."""
    require_administer(identity, repository)
    hub.repositories.delete(repository)
    hub.events.add(identity.name, "repository.deleted", repository.name, type=repository.type)


def move_repository(hub: HubServices, identity: Identity, repository: Repository, to: str) -> Repository:
    """Move or rename a repository. Raises Forbidden, and as Repositories.move."""
    require_administer(identity, repository)
    namespace, _, name = check_repository_name(to).partition("/")
    if fold_name(namespace) != fold_name(repository.namespace):
        require_create(identity, namespace)
    full = f"{hub.accounts.get(namespace).name}/{name}"
    moved = hub.repositories.move(repository, full)
    hub.events.add(identity.name, "repository.moved", repository.name, type=repository.type, to=full)
    return moved


def change_settings(
    hub: HubServices, identity: Identity, repository: Repository, *, private: bool | None, gated: Gate | None
) -> Repository:
    """Change visibility and gating; None: unchanged. Raises Forbidden."""
    require_administer(identity, repository)
    changed = hub.repositories.update(repository, private=private, gated=gated)
    hub.events.add(
        identity.name,
        "repository.updated",
        repository.name,
        type=repository.type,
        private=private,
        gated=gated,
    )
    return changed


def _parse_type(word: str | None) -> RepositoryType:
    match word:
        case None | "model":
            return "model"
        case "dataset":
            return "dataset"
        case "space" | "bucket" | "kernel":
            raise Unsupported(f"{word}s are not supported: use a model or a dataset")
        case _:
            raise Invalid(f"unknown repository type {word[:40]!r}: use model or dataset")


def _full_name(named: RepositoryName, owner: str) -> str:
    return check_repository_name(f"{named.organization or owner}/{named.name}")


# Validation of a README's metadata, which clients request before uploading.

validate_router = APIRouter(tags=["write"])

LARGEST = 5_000_000  # bytes of JSON with a README, which has at most 4 MB
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The text of a README.md.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["content"],
                    "properties": {"content": {"type": "string"}},
                }
            }
        },
    }
}


async def read_readme(request: Request) -> str:
    """Read the text of the README, parsed in a thread, since a large body takes long."""
    lift_body_limit(request, LARGEST)
    with suppress(ValueError, RecursionError):
        match await run_in_threadpool(json.loads, await request.body()):
            case {"content": str(content)}:
                return content
    raise Invalid('invalid body: send the README as JSON, {"content": "…"}')


@validate_router.post(
    "/api/validate-yaml",
    summary="Check the metadata of a README.md",
    response_description="Valid; warnings",
    responses={400: {"description": "Errors"}},
    openapi_extra=BODY,
)
def validate(readme: Annotated[str, Depends(read_readme)], _turn: ExpensiveTurn) -> JSONResponse:
    """Clients read errors and warnings from the body, whatever the status."""
    try:
        card, _ = metadata.parse_readme(readme)
    except Refused as error:
        return JSONResponse({"errors": [{"message": str(error)}], "warnings": []}, 400)
    missing = [] if card else [{"message": "README.md has no metadata: it can't be found by tags"}]
    return JSONResponse({"errors": [], "warnings": missing})
