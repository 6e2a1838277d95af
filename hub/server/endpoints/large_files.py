"""Uploads of large files, whole or in parts.

Clients send no token here. The URL has a signed ticket that says who may upload which file until when. It ends with the
token that it was issued for.
"""

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Forbidden, Invalid
from kcard.hub.repositories.parts import Parts
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.limits import in_write_thread
from kcard.hub.server.writing.quota import reserved
from kcard.hub.server.writing.signing import Claims, sign, signed
from kcard.hub.server.writing.spool import spooled
from kcard.hub.shared import SharedHub
from kcard.hub.store.disk import partial_folder

__all__ = ["MOST_PARTS", "parts_of", "router", "upload_action"]

router = APIRouter(tags=["lfs"])

WHOLE, PART, PARTS = "lfs", "lfs-part", "lfs-parts"
SECONDS = 6 * 3600  # the last file of a batch is sent after all others
MOST_PARTS = 10_000

Oid = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
Ticket = Annotated[str, Query(max_length=2000)]


class Completion(BaseModel):
    """The file whose parts were sent. Clients also send back the ETags of the parts, which are not needed."""

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
    """Where to upload a file; in parts if it is larger than `part_size` bytes. 0: never in parts."""
    claims: Claims = {"token": identity.token, "repository": repository_id, "oid": oid, "size": size}
    url = f"{base}/lfs/{oid}"
    if not 0 < part_size < size:
        return {"href": f"{url}?ticket={sign(secret, WHOLE, claims, SECONDS)}", "header": {}}
    part_size = max(part_size, -(-size // MOST_PARTS))
    count = -(-size // part_size)
    header = {"chunk_size": str(part_size)}
    for number in range(1, count + 1):
        length = min(part_size, size - (number - 1) * part_size)
        part: Claims = {**claims, "number": number, "length": length}
        header[f"{number:05d}"] = f"{url}/parts/{number}?ticket={sign(secret, PART, part, SECONDS)}"
    ticket = sign(secret, PARTS, {**claims, "count": count}, SECONDS)
    return {"href": f"{url}/parts?ticket={ticket}", "header": header}


@router.put("/lfs/{oid}")
async def put_file(request: Request, oid: Oid, ticket: Ticket, hub: HubDep) -> Response:
    """Upload a whole file."""
    upload = await run_in_threadpool(_resumed, hub, WHOLE, ticket, oid)
    async with (
        reserved(hub, upload.repository_id, upload.size) as reservation,
        spooled(request, hub.blobs.partial, upload.size) as sent,
    ):
        _complete(sent.size, upload.size)
        if sent.sha256 != oid:
            raise Invalid(f"the upload has sha256 {sent.sha256[:12]}…, expected {oid[:12]}…: send it again")
        await in_write_thread(upload.store, hub, sent.path, reservation=reservation)
    return Response()


@router.put("/lfs/{oid}/parts/{number}")
async def put_part(
    request: Request, oid: Oid, number: Annotated[int, Path(ge=1)], ticket: Ticket, hub: HubDep
) -> Response:
    """Upload a part of a file."""
    upload = await run_in_threadpool(_resumed, hub, PART, ticket, oid)
    if upload.claims["number"] != number:
        raise Forbidden(f"the ticket is for part {upload.claims['number']}, not {number}")
    length, parts = int(upload.claims["length"]), parts_of(hub)
    await in_write_thread(parts.drop, upload.parts, number)
    async with (
        reserved(hub, upload.repository_id, length) as reservation,
        spooled(request, hub.blobs.partial, length) as sent,
    ):
        _complete(sent.size, length)
        await in_write_thread(parts.put, upload.parts, number, sent.path, reservation)
    return Response(headers={"ETag": f'"{sent.sha256}"'})


@router.post("/lfs/{oid}/parts")
async def join_parts(oid: Oid, ticket: Ticket, done: Completion, hub: HubDep) -> JSONResponse:
    """Join the parts of a file. Clients may repeat this if the response was lost."""
    upload = await run_in_threadpool(_resumed, hub, PARTS, ticket, oid)
    if done.oid != oid:
        raise Forbidden(f"the ticket is for {oid[:12]}…, not {done.oid[:12]!r}")
    await in_write_thread(_join, hub, upload, oid)
    return JSONResponse({})


def _join(hub: SharedHub, upload: "_Upload", oid: str) -> None:
    if hub.uploads.usable(upload.identity, oid) == upload.size:
        return
    with partial_folder(hub.blobs.partial) as folder:
        path = folder / "file"
        _complete(parts_of(hub).join(upload.parts, int(upload.claims["count"]), oid, path), upload.size)
        upload.store(hub, path)
    parts_of(hub).discard(upload.parts)


def parts_of(hub: SharedHub) -> Parts:
    """The parts that were uploaded to a hub."""
    return Parts(hub.blobs.partial.parent / "parts", hub.database)


@dataclass(frozen=True)
class _Upload:
    """What a ticket allows, and to whom."""

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

    def store(self, hub: SharedHub, path: FilePath, *, reservation: int | None = None) -> None:
        """Store the complete file."""
        hub.uploads.store(
            self.identity.account_id,
            path,
            self.oid,
            self.size,
            repository_id=self.repository_id,
            reservation=reservation,
            parts=self.parts,
        )


def _resumed(hub: SharedHub, purpose: str, ticket: str, oid: str) -> _Upload:
    """The upload of a ticket. Raises Unknown if it is not genuine, or its token works no more."""
    claims = signed(hub.secret, purpose, ticket)
    if claims["oid"] != oid:
        raise Forbidden(f"the ticket is not for {oid[:12]}…")
    return _Upload(hub.tokens.resume(str(claims.get("token", ""))), claims)


def _complete(size: int, expected: int) -> None:
    if size != expected:
        raise Invalid(f"received {size} bytes, expected {expected}: send it again")
