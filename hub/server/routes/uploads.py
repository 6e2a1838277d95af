"""Uploads of large files, whole or in parts.

Clients send no token here. The URL has a signed ticket that says who may upload which file until when; any worker can
verify it with the hub's secret. It becomes invalid with the token that it was issued for.
"""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeAlias

from anyio import CancelScope, to_thread
from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from kcard.hub.accounts import Identity
from kcard.hub.errors import Forbidden, Invalid, Unauthenticated
from kcard.hub.permissions import require_write_now
from kcard.hub.server.concurrency import run_in_write_thread
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.upload_checks import store_body
from kcard.hub.services import HubServices
from kcard.hub.storage import partial_folder
from kcard.hub.uploads import Parts

router = APIRouter(tags=["lfs"])

RENEW_SECONDS = 30
WHOLE_FILE, FILE_PART, PARTS_LIST = "lfs", "lfs-part", "lfs-parts"
TICKET_SECONDS = 6 * 3600  # the last file of a batch is sent after all others
MAX_PARTS = 10_000

Oid = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
Ticket = Annotated[str, Query(max_length=2000)]
# What a ticket says; "until" is in seconds since 1970.
Claims: TypeAlias = Mapping[str, str | int]


def sign_ticket(secret: bytes, purpose: str, claims: Claims, seconds: float) -> str:
    """Return a URL-safe ticket for one purpose, valid for `seconds`. It is not encrypted."""
    text = json.dumps({**claims, "until": int(time.time() + seconds)}, sort_keys=True)
    payload = base64.urlsafe_b64encode(text.encode()).decode()
    return f"{payload}.{_signature(secret, purpose, payload)}"


def verify_ticket(secret: bytes, purpose: str, ticket: str) -> Claims:
    """Return the claims of a ticket. Raises Unauthenticated if it is forged, has another purpose, or has expired."""
    payload, _, signature = ticket.partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, purpose, payload).encode()):
        raise Unauthenticated("invalid ticket: start the upload again")
    claims: Claims = json.loads(base64.urlsafe_b64decode(payload))
    if int(claims["until"]) < time.time():
        raise Unauthenticated("expired ticket: start the upload again")
    return claims


def _signature(secret: bytes, purpose: str, payload: str) -> str:
    return hmac.digest(secret, f"{purpose}.{payload}".encode(), "sha256").hex()


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
        ticket = sign_ticket(secret, WHOLE_FILE, claims, TICKET_SECONDS)
        return {"href": f"{url}?ticket={ticket}", "header": {}}
    part_size = max(part_size, -(-size // MAX_PARTS))
    count = -(-size // part_size)
    header = {"chunk_size": str(part_size)}
    for number in range(1, count + 1):
        length = min(part_size, size - (number - 1) * part_size)
        part: Claims = {**claims, "number": number, "length": length}
        header[f"{number:05d}"] = (
            f"{url}/parts/{number}?ticket={sign_ticket(secret, FILE_PART, part, TICKET_SECONDS)}"
        )
    ticket = sign_ticket(secret, PARTS_LIST, {**claims, "count": count}, TICKET_SECONDS)
    return {"href": f"{url}/parts?ticket={ticket}", "header": header}


@router.put("/lfs/{oid}")
async def put_file(request: Request, oid: Oid, ticket: Ticket, hub: HubDep) -> Response:
    """Upload a whole file."""
    upload = await run_in_threadpool(_resume_upload, hub, WHOLE_FILE, ticket, oid)
    async with (
        reserve_quota(hub, upload.repository_id, upload.size) as reservation,
        store_body(request, hub.blobs.partial, upload.size) as sent,
    ):
        _require_size(sent.size, upload.size)
        if sent.sha256 != oid:
            raise Invalid(f"the upload has sha256 {sent.sha256[:12]}…, expected {oid[:12]}…: send it again")
        await run_in_write_thread(upload.store, hub, sent.path, reservation=reservation)
    return Response()


@router.put("/lfs/{oid}/parts/{number}")
async def put_part(
    request: Request, oid: Oid, number: Annotated[int, Path(ge=1)], ticket: Ticket, hub: HubDep
) -> Response:
    """Upload a part of a file."""
    upload = await run_in_threadpool(_resume_upload, hub, FILE_PART, ticket, oid)
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


@router.post("/lfs/{oid}/parts")
async def join_parts(oid: Oid, ticket: Ticket, done: Completion, hub: HubDep) -> JSONResponse:
    """Join the parts of a file. Clients may repeat this if the response was lost."""
    upload = await run_in_threadpool(_resume_upload, hub, PARTS_LIST, ticket, oid)
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
    """What a ticket allows its bearer to upload. `parts`: the name of an upload in parts."""

    identity: Identity
    claims: Claims
    repository_id: int
    oid: str
    size: int
    parts: str

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
    identity = hub.tokens.resume(str(claims.get("token", "")))
    repository_id = int(claims["repository"])
    name = f"{identity.account_id}-{repository_id}-{oid}"
    upload = _Upload(identity, claims, repository_id, oid, int(claims["size"]), name)
    upload.require_write(hub)
    return upload


def _require_size(size: int, expected: int) -> None:
    if size != expected:
        raise Invalid(f"received {size} bytes, expected {expected}: send it again")
