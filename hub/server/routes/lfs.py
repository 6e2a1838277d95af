"""Large files: uploads, downloads and quotas by the Git LFS protocol.

Only accounts that uploaded a file or may read it learn that the hub has it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal
from urllib.parse import quote

from anyio import CancelScope, to_thread
from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from kcard.hub.accounts import Identity
from kcard.hub.db.models import Repository
from kcard.hub.errors import Forbidden, Invalid, NotFound
from kcard.hub.permissions import require_write, require_write_now
from kcard.hub.server.caches import Caches, CachesDep
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    RequiredIdentity,
    WebRepository,
    base_url,
    require_download,
)
from kcard.hub.server.limits import EXPENSIVE, run_in_write_thread
from kcard.hub.server.upload_checks import Claims, sign_ticket, store_body, verify_ticket
from kcard.hub.services import HubServices
from kcard.hub.storage import partial_folder
from kcard.hub.uploads import Parts

# Reservations of a namespace's quota while an upload is received.

RENEW_SECONDS = 30


@asynccontextmanager
async def reserve_quota(hub: HubServices, repository_id: int, size: int) -> AsyncIterator[int | None]:
    """Reserve bytes of the quota of the repository's namespace until the block ends; yield None without a quota.

    Raises TooLarge if the quota has fewer bytes left.
    """
    reservation = await to_thread.run_sync(hub.reservations.reserve, repository_id, size)
    if reservation is None:
        yield None
        return

    async def renew() -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            await to_thread.run_sync(hub.reservations.renew, reservation)

    renewing = asyncio.ensure_future(renew())
    try:
        yield reservation
    finally:
        renewing.cancel()
        with CancelScope(shield=True):
            await to_thread.run_sync(hub.reservations.release, reservation)


# Uploads of large files, whole or in parts.
#
# Clients send no token here. The URL has a signed ticket that says who may upload which file until when. It becomes
# invalid with the token that it was issued for.

large_files_router = APIRouter(tags=["lfs"])

WHOLE, PART, PARTS = "lfs", "lfs-part", "lfs-parts"
SECONDS = 6 * 3600  # the last file of a batch is sent after all others
MOST_PARTS = 10_000

Oid = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
Ticket = Annotated[str, Query(max_length=2000)]


class Completion(BaseModel):
    """The file whose parts were sent. Clients also return the ETags of the parts, which are not needed."""

    oid: str = Field(max_length=64)


def upload_action(
    secret: bytes,
    base: str,
    identity: Identity,
    repository_id: int,
    *,
    oid: str,
    size: int,
    part_size: int = 0,
) -> dict[str, Any]:
    """Return where to upload a file: in parts if it is larger than `part_size` bytes; 0: never in parts."""
    claims: Claims = {"token": identity.token, "repository": repository_id, "oid": oid, "size": size}
    url = f"{base}/lfs/{oid}"
    if not 0 < part_size < size:
        return {"href": f"{url}?ticket={sign_ticket(secret, WHOLE, claims, SECONDS)}", "header": {}}
    part_size = max(part_size, -(-size // MOST_PARTS))
    count = -(-size // part_size)
    header = {"chunk_size": str(part_size)}
    for number in range(1, count + 1):
        length = min(part_size, size - (number - 1) * part_size)
        part: Claims = {**claims, "number": number, "length": length}
        header[f"{number:05d}"] = f"{url}/parts/{number}?ticket={sign_ticket(secret, PART, part, SECONDS)}"
    ticket = sign_ticket(secret, PARTS, {**claims, "count": count}, SECONDS)
    return {"href": f"{url}/parts?ticket={ticket}", "header": header}


@large_files_router.put("/lfs/{oid}")
async def put_file(request: Request, oid: Oid, ticket: Ticket, hub: HubDep) -> Response:
    """Upload a whole file."""
    upload = await run_in_threadpool(_resume_upload, hub, WHOLE, ticket, oid)
    async with (
        reserve_quota(hub, upload.repository_id, upload.size) as reservation,
        store_body(request, hub.blobs.partial, upload.size) as sent,
    ):
        _require_size(sent.size, upload.size)
        if sent.sha256 != oid:
            raise Invalid(f"the upload has sha256 {sent.sha256[:12]}…, expected {oid[:12]}…: send it again")
        await run_in_write_thread(upload.store, hub, sent.path, reservation=reservation)
    return Response()


@large_files_router.put("/lfs/{oid}/parts/{number}")
async def put_part(
    request: Request, oid: Oid, number: Annotated[int, Path(ge=1)], ticket: Ticket, hub: HubDep
) -> Response:
    """Upload a part of a file."""
    upload = await run_in_threadpool(_resume_upload, hub, PART, ticket, oid)
    if upload.claims["number"] != number:
        raise Forbidden(f"the ticket is for part {upload.claims['number']}, not {number}")
    length, parts = int(upload.claims["length"]), open_parts(hub)
    await run_in_write_thread(parts.drop, upload.parts, number)
    async with (
        reserve_quota(hub, upload.repository_id, length) as reservation,
        store_body(request, hub.blobs.partial, length) as sent,
    ):
        _require_size(sent.size, length)
        await run_in_threadpool(upload.require_write, hub)  # as it may be by now
        await run_in_write_thread(parts.put, upload.parts, number, sent.path, reservation)
    return Response(headers={"ETag": f'"{sent.sha256}"'})


@large_files_router.post("/lfs/{oid}/parts")
async def join_parts(oid: Oid, ticket: Ticket, done: Completion, hub: HubDep) -> JSONResponse:
    """Join the parts of a file. Clients may repeat this if the response was lost."""
    upload = await run_in_threadpool(_resume_upload, hub, PARTS, ticket, oid)
    if done.oid != oid:
        raise Forbidden(f"the ticket is for {oid[:12]}…, not {done.oid[:12]!r}")

    def join() -> None:
        if hub.uploads.find_usable_size(upload.identity, oid) == upload.size:
            return
        parts = open_parts(hub)
        with partial_folder(hub.blobs.partial) as folder:
            path = folder / "file"
            _require_size(parts.join(upload.parts, int(upload.claims["count"]), oid, path), upload.size)
            upload.store(hub, path)
        parts.discard(upload.parts)

    await run_in_write_thread(join)
    return JSONResponse({})


def open_parts(hub: HubServices) -> Parts:
    """Return the parts that were uploaded to a hub."""
    return Parts(hub.blobs.partial.parent / "parts", hub.database)


@dataclass(frozen=True)
class _Upload:
    """What a ticket allows its bearer to upload."""

    identity: Identity
    claims: Claims

    @property
    def repository_id(self) -> int:
        return int(self.claims["repository"])

    @property
    def oid(self) -> str:
        return str(self.claims["oid"])

    @property
    def size(self) -> int:
        return int(self.claims["size"])

    @property
    def parts(self) -> str:
        """The name of the upload in parts."""
        return f"{self.identity.account_id}-{self.repository_id}-{self.oid}"

    def require_write(self, hub: HubServices) -> None:
        """Raise as `require_write_now`: a ticket is of no use without its token, its account or their role."""
        with hub.database.read() as session:
            require_write_now(session, self.identity, self.repository_id)

    def store(self, hub: HubServices, path: FilePath, *, reservation: int | None = None) -> None:
        """Store the complete file."""
        hub.uploads.store(
            self.identity,
            path,
            self.oid,
            self.size,
            repository_id=self.repository_id,
            reservation=reservation,
            parts=self.parts,
        )


def _resume_upload(hub: HubServices, purpose: str, ticket: str, oid: str) -> _Upload:
    """Return the upload of a ticket.

    Raises Unauthenticated for a forged ticket, or if its token is no longer valid, and as `require_write_now`.
    """
    claims = verify_ticket(hub.secret, purpose, ticket)
    if claims["oid"] != oid:
        raise Forbidden(f"the ticket is not for {oid[:12]}…")
    upload = _Upload(hub.tokens.resume(str(claims.get("token", ""))), claims)
    upload.require_write(hub)
    return upload


def _require_size(size: int, expected: int) -> None:
    if size != expected:
        raise Invalid(f"received {size} bytes, expected {expected}: send it again")


router = APIRouter(tags=["lfs"])

MEDIA_TYPE = "application/vnd.git-lfs+json"
MOST = 1000  # objects of a batch
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
    objects: list[LargeFile] = Field(max_length=MOST)
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
            verify = f"{base}{_repository_path(repository)}.git/info/lfs/objects/verify"
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
    name = batch.ref.name.removeprefix("refs/heads/") if batch.ref else "main"
    commit = hub.refs.resolve(repository, name)
    tree = caches.tree(repository, commit)
    paths = {entry.sha256: path for path, entry in tree.items() if entry.lfs}
    for file in batch.objects:
        if (path := paths.get(file.oid)) is None:
            yield _refuse_file(file, 404, f"file not found in {repository.name} at {name}")
        else:
            href = f"{base}{_repository_path(repository)}/resolve/{commit}/{quote(path)}"
            yield {**file.model_dump(), "actions": {"download": {"href": href, "header": {}}}}


def _refuse_file(file: LargeFile, code: int, message: str) -> dict[str, Any]:
    return {**file.model_dump(), "error": {"code": code, "message": message}}


def _repository_path(repository: Repository) -> str:
    return f"{DATASETS if repository.type == 'dataset' else ''}/{repository.name}"


def _batch_response(transfer: str, files: Iterable[dict[str, Any]]) -> JSONResponse:
    body = {"transfer": transfer, "objects": list(files), "hash_algo": "sha256"}
    return JSONResponse(body, media_type=MEDIA_TYPE)
