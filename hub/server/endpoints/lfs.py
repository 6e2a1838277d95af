"""The Git LFS batch API: where to upload or download large files.

Only accounts that uploaded a file or may read it learn that the hub has it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import NotThere
from kcard.hub.repositories.permissions import require_write
from kcard.hub.repositories.values import Repository
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    RequiredIdentity,
    WebRepository,
    base_url,
    require_download,
)
from kcard.hub.server.endpoints.large_files import upload_action
from kcard.hub.server.limits import IN_TURN
from kcard.hub.server.reading.recent import Recent, RecentDep
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["lfs"])

MEDIA_TYPE = "application/vnd.git-lfs+json"
MOST = 1000  # objects of a batch
OBJECTS = "/{namespace}/{name}.git/info/lfs/objects"
DATASETS = "/datasets"


class LargeFile(BaseModel):
    """A large file by sha256 and size in bytes."""

    oid: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=0, lt=1 << 53)


class Reference(BaseModel):
    """A revision."""

    name: str = Field(max_length=250, pattern=r"^[^\x00-\x1f]+$")


class Batch(BaseModel):
    """The files of an upload or a download, and the transfers that the client supports."""

    operation: Literal["upload", "download"]
    transfers: list[Annotated[str, Field(max_length=40)]] = Field(["basic"], max_length=20)
    objects: list[LargeFile] = Field(max_length=MOST)
    ref: Reference | None = None
    hash_algo: Literal["sha256"] = "sha256"


@router.post(f"{OBJECTS}/batch", dependencies=[IN_TURN])
@router.post(f"{DATASETS}{OBJECTS}/batch", dependencies=[IN_TURN])
def request_batch(
    request: Request,
    batch: Batch,
    repository: WebRepository,
    identity: OptionalIdentity,
    hub: HubDep,
    recent: RecentDep,
    options: OptionsDep,
) -> JSONResponse:
    """Get the URLs for large files."""
    base = base_url(request, options)
    if batch.operation == "download":
        return _answer("basic", _downloads(base, batch, repository, identity, hub, recent))
    require_write(identity, repository)
    assert identity is not None  # as require_write checked
    in_parts = "multipart" in batch.transfers
    limits = _Limits(
        options.max_file_size,
        options.part_size if in_parts else 0,
        hub.reservations.remaining(repository.id),
    )
    answers = _uploads(base, batch.objects, repository, identity, hub, limits)
    return _answer("multipart" if in_parts else "basic", answers)


@router.post(f"{OBJECTS}/verify")
@router.post(f"{DATASETS}{OBJECTS}/verify")
def verify(
    file: LargeFile, _repository: WebRepository, identity: RequiredIdentity, hub: HubDep
) -> JSONResponse:
    """Check that a file was uploaded."""
    if hub.uploads.usable(identity, file.oid) != file.size:
        raise NotThere("object", f"no file {file.oid[:12]}… of {file.size} bytes was uploaded: send it again")
    return JSONResponse({}, media_type=MEDIA_TYPE)


@dataclass(frozen=True)
class _Limits:
    """Bytes of the largest file, of a part (0: no parts), and of all files together (None: no limit)."""

    file: int
    part: int
    room: int | None


def _uploads(
    base: str,
    files: Sequence[LargeFile],
    repository: Repository,
    identity: Identity,
    hub: SharedHub,
    limits: _Limits,
) -> Iterator[dict[str, Any]]:
    room = limits.room
    known = hub.uploads.usable_of(identity, {file.oid for file in files})
    there = {file.oid: file.size for file in files if known.get(file.oid) == file.size}
    if there:  # gc keeps them until they are committed
        hub.uploads.record(identity.account_id, there, repository.id)
    for file in files:
        if file.oid in there:
            yield file.model_dump()
        elif file.oid in known:
            yield _refused(file, 422, f"the file with this sha256 has {known[file.oid]} bytes")
        elif file.size > limits.file:
            yield _refused(file, 413, f"the file exceeds the hub's limit of {limits.file} bytes")
        elif room is not None and file.size > room:
            yield _refused(
                file, 413, f"quota of {repository.namespace} exceeded: {max(0, room)} bytes are left"
            )
        else:
            room = None if room is None else room - file.size
            upload = upload_action(
                hub.secret,
                base,
                identity,
                repository.id,
                oid=file.oid,
                size=file.size,
                part_size=limits.part,
            )
            check = {"href": f"{base}{_url(repository)}.git/info/lfs/objects/verify", "header": {}}
            yield {**file.model_dump(), "authenticated": True, "actions": {"upload": upload, "verify": check}}


def _downloads(
    base: str,
    batch: Batch,
    repository: Repository,
    identity: Identity | None,
    hub: SharedHub,
    recent: Recent,
) -> Iterator[dict[str, Any]]:
    require_download(hub, identity, repository)
    name = batch.ref.name.removeprefix("refs/heads/") if batch.ref else "main"
    commit = hub.refs.resolve(repository, name)
    tree = recent.trees.get(repository, commit)
    paths = {entry.sha256: path for path, entry in tree.items() if entry.lfs}
    for file in batch.objects:
        if (path := paths.get(file.oid)) is None:
            yield _refused(file, 404, f"file not found in {repository.name} at {name}")
        else:
            href = f"{base}{_url(repository)}/resolve/{commit}/{quote(path)}"
            yield {**file.model_dump(), "actions": {"download": {"href": href, "header": {}}}}


def _refused(file: LargeFile, code: int, message: str) -> dict[str, Any]:
    return {**file.model_dump(), "error": {"code": code, "message": message}}


def _url(repository: Repository) -> str:
    return f"{DATASETS if repository.type == 'dataset' else ''}/{repository.name}"


def _answer(transfer: str, answers: Iterable[dict[str, Any]]) -> JSONResponse:
    body = {"transfer": transfer, "objects": list(answers), "hash_algo": "sha256"}
    return JSONResponse(body, media_type=MEDIA_TYPE)
