"""The Git LFS protocol: where to upload and download large files.

Only accounts that uploaded a file or may read it learn that the hub has it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts import Identity
from kcard.hub.db.models import Repository
from kcard.hub.errors import NotFound
from kcard.hub.permissions import require_write
from kcard.hub.server.caches import Caches, CachesDep
from kcard.hub.server.concurrency import EXPENSIVE
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    RequiredIdentity,
    WebRepository,
    base_url,
    require_download,
)
from kcard.hub.server.routes.uploads import upload_action
from kcard.hub.services import HubServices
from kcard.hub.values import MAIN

router = APIRouter(tags=["lfs"])

MEDIA_TYPE = "application/vnd.git-lfs+json"
MAX_OBJECTS = 1000  # of a batch
OBJECTS = "/{namespace}/{name}.git/info/lfs/objects"
DATASETS = "/datasets"


class LargeFile(BaseModel):
    """A large file by sha256 and size in bytes."""

    oid: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=0, lt=1 << 53)


class LfsReference(BaseModel):
    """A revision."""

    name: str = Field(max_length=250, pattern=r"^[^\x00-\x1f]+$")


class LfsBatch(BaseModel):
    """The files of an upload or a download, and the transfers that the client supports."""

    operation: Literal["upload", "download"]
    transfers: list[Annotated[str, Field(max_length=40)]] = Field(["basic"], max_length=20)
    objects: list[LargeFile] = Field(max_length=MAX_OBJECTS)
    ref: LfsReference | None = None
    hash_algo: Literal["sha256"] = "sha256"


@router.post(f"{OBJECTS}/batch", dependencies=[EXPENSIVE])
@router.post(f"{DATASETS}{OBJECTS}/batch", dependencies=[EXPENSIVE])
def request_batch(
    request: Request,
    batch: LfsBatch,
    repository: WebRepository,
    identity: OptionalIdentity,
    hub: HubDep,
    caches: CachesDep,
    options: OptionsDep,
) -> JSONResponse:
    """Get the URLs for large files."""
    base = base_url(request, options)
    if batch.operation == "download":
        return _batch_response("basic", _offer_downloads(base, batch, repository, identity, hub, caches))
    require_write(identity, repository)
    assert identity is not None  # as require_write checked
    in_parts = "multipart" in batch.transfers
    part_size = options.part_size if in_parts else 0
    files = _offer_uploads(base, batch.objects, repository, identity, hub, options.max_file_size, part_size)
    return _batch_response("multipart" if in_parts else "basic", files)


@router.post(f"{OBJECTS}/verify")
@router.post(f"{DATASETS}{OBJECTS}/verify")
def verify(
    file: LargeFile, _repository: WebRepository, identity: RequiredIdentity, hub: HubDep
) -> JSONResponse:
    """Check that a file was uploaded."""
    if hub.uploads.find_usable_size(identity, file.oid) != file.size:
        raise NotFound("object", f"no file {file.oid[:12]}… of {file.size} bytes was uploaded: send it again")
    return JSONResponse({}, media_type=MEDIA_TYPE)


def _offer_uploads(
    base: str,
    files: Sequence[LargeFile],
    repository: Repository,
    identity: Identity,
    hub: HubServices,
    largest: int,
    part_size: int,
) -> Iterator[dict[str, Any]]:
    # What the account has sent already, or may read elsewhere, need not be sent.
    room = hub.reservations.remaining(repository.id)
    usable = hub.uploads.find_usable(identity, {file.oid for file in files})
    existing = {file.oid: file.size for file in files if usable.get(file.oid) == file.size}
    if existing:  # gc keeps them until they are committed
        hub.uploads.record(identity, existing, repository.id)
    # Of the others, each is refused or gets its upload URLs.
    for file in files:
        if file.oid in existing:
            yield file.model_dump()
        elif file.oid in usable:
            yield _refuse_file(file, 422, f"the file with this sha256 has {usable[file.oid]} bytes")
        elif file.size > largest:
            yield _refuse_file(file, 413, f"the file exceeds the hub's limit of {largest} bytes")
        elif room is not None and file.size > room:
            yield _refuse_file(
                file, 413, f"quota of {repository.namespace} exceeded: {max(0, room)} bytes are left"
            )
        else:
            room = None if room is None else room - file.size
            upload = upload_action(
                hub.secret, base, identity, repository.id, oid=file.oid, size=file.size, part_size=part_size
            )
            verify = f"{base}{repository.path}.git/info/lfs/objects/verify"
            check = {"href": verify, "header": {}}
            yield {**file.model_dump(), "authenticated": True, "actions": {"upload": upload, "verify": check}}


def _offer_downloads(
    base: str,
    batch: LfsBatch,
    repository: Repository,
    identity: Identity | None,
    hub: HubServices,
    caches: Caches,
) -> Iterator[dict[str, Any]]:
    require_download(hub, identity, repository)
    name = MAIN
    if batch.ref is not None:
        name = batch.ref.name.removeprefix("refs/heads/")
    commit = hub.refs.resolve(repository, name)
    tree = caches.tree(repository, commit)
    paths = {entry.sha256: path for path, entry in tree.items() if entry.lfs}
    for file in batch.objects:
        path = paths.get(file.oid)
        if path is None:
            yield _refuse_file(file, 404, f"file not found in {repository.name} at {name}")
        else:
            href = f"{base}{repository.path}/resolve/{commit}/{quote(path)}"
            yield {**file.model_dump(), "actions": {"download": {"href": href, "header": {}}}}


def _refuse_file(file: LargeFile, code: int, message: str) -> dict[str, Any]:
    return {**file.model_dump(), "error": {"code": code, "message": message}}


def _batch_response(transfer: str, files: Iterable[dict[str, Any]]) -> JSONResponse:
    body = {"transfer": transfer, "objects": list(files), "hash_algo": "sha256"}
    return JSONResponse(body, media_type=MEDIA_TYPE)
