"""Create, move and delete repositories, change their settings, validate the metadata of a README.md."""

import json
from contextlib import suppress
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts import check_repository_name, fold_name
from kcard.hub.checks import metadata
from kcard.hub.db.models import Gate, RepositoryType
from kcard.hub.errors import Conflict, Invalid, Refused, Unsupported
from kcard.hub.permissions import require_administer, require_create
from kcard.hub.server.concurrency import ExpensiveTurn
from kcard.hub.server.dependencies import (
    AdministeredRepository,
    HubDep,
    OptionsDep,
    RequiredIdentity,
    Visibility,
    base_url,
    get_repository,
)
from kcard.hub.server.limits import lift_body_limit

router = APIRouter(tags=["write"])

MAX_README_BODY_BYTES = 5_000_000  # of JSON with a README, which has at most 4 MB


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


@router.post("/api/repos/create")
def create(
    new: NewRepository, request: Request, hub: HubDep, options: OptionsDep, identity: RequiredIdentity
) -> JSONResponse:
    """Create a repository. A 409 has the URL too: clients read it there with `exist_ok`."""
    type_, name = _parse_type(new.type), _full_name(new, identity.name)
    base = base_url(request, options)
    private = new.makes_private
    if private is None:
        private = options.visibility == "private"
    namespace, _, own_name = name.partition("/")
    require_create(identity, namespace)
    account = hub.accounts.get(namespace)
    full_name = f"{account.name}/{own_name}"  # with the case of the account's name
    try:
        repository = hub.repositories.create(type_, account.id, full_name, private=private, by=identity)
    except Conflict as conflict:
        there = hub.repositories.get(type_, conflict.name or name)
        return JSONResponse({"error": str(conflict), "url": base + there.path}, 409)
    hub.events.add(identity.name, "repository.created", repository.name, type=type_, private=private)
    return JSONResponse({"url": base + repository.path, "name": repository.name, "id": str(repository.id)})


@router.delete("/api/repos/delete")
def delete(named: RepositoryName, hub: HubDep, identity: RequiredIdentity) -> JSONResponse:
    """Delete a repository with all its contents and published versions."""
    repository = get_repository(hub, _parse_type(named.type), _full_name(named, identity.name), identity)
    require_administer(identity, repository)
    hub.repositories.delete(repository)
    hub.events.add(identity.name, "repository.deleted", repository.name, type=repository.type)
    return JSONResponse({})


@router.post("/api/repos/move")
def move(move: Move, hub: HubDep, identity: RequiredIdentity) -> JSONResponse:
    """Move or rename a repository.

    For administrators of the repository who may create repositories in the new namespace.
    """
    repository = get_repository(hub, _parse_type(move.type), check_repository_name(move.fromRepo), identity)
    require_administer(identity, repository)
    namespace, _, name = check_repository_name(move.toRepo).partition("/")
    if fold_name(namespace) != fold_name(repository.namespace):
        require_create(identity, namespace)
    full_name = f"{hub.accounts.get(namespace).name}/{name}"
    hub.repositories.move(repository, full_name)
    hub.events.add(identity.name, "repository.moved", repository.name, type=repository.type, to=full_name)
    return JSONResponse({})


@router.put("/api/{types}/{namespace}/{name}/settings")
def settings(
    settings: RepositorySettings, repository: AdministeredRepository, hub: HubDep, identity: RequiredIdentity
) -> JSONResponse:
    """Change the visibility or gating of a repository. Omitted settings stay."""
    private = settings.makes_private
    gated: Gate | None = "no" if settings.gated is False else settings.gated
    changed = hub.repositories.update(repository, private=private, gated=gated)
    hub.events.add(
        identity.name,
        "repository.updated",
        repository.name,
        type=repository.type,
        private=private,
        gated=gated,
    )
    return JSONResponse(
        {
            "private": changed.private,
            "visibility": "private" if changed.private else "public",
            "gated": False if changed.gated == "no" else changed.gated,
        }
    )


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


async def read_readme(request: Request) -> str:
    """Read the text of the README, parsed in a thread, since a large body takes long."""
    lift_body_limit(request, MAX_README_BODY_BYTES)
    with suppress(ValueError, RecursionError):
        match await run_in_threadpool(json.loads, await request.body()):
            case {"content": str(content)}:
                return content
    raise Invalid('invalid body: send the README as JSON, {"content": "…"}')


@router.post("/api/validate-yaml")
def validate(readme: Annotated[str, Depends(read_readme)], _turn: ExpensiveTurn) -> JSONResponse:
    """Check the metadata of a README.md.

    Clients read errors and warnings from the body, whatever the status.
    """
    try:
        card, _ = metadata.parse_readme(readme)
    except Refused as error:
        return JSONResponse({"errors": [{"message": str(error)}], "warnings": []}, 400)
    missing = [] if card else [{"message": "README.md has no metadata: it can't be found by tags"}]
    return JSONResponse({"errors": [], "warnings": missing})
