"""Uploads of large files, whole or in parts.

Clients send no token here. The URL has a signed ticket that says who may upload which file until when.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from kcard.hub.refusals import Forbidden, Invalid
from kcard.hub.repositories.parts import Parts
from kcard.hub.server.dependencies import HubDep, OptionsDep
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.writing.quota import require_quota
from kcard.hub.server.writing.signing import Claims, sign, signed
from kcard.hub.server.writing.spool import spooled
from kcard.hub.server.writing.turns import store_in_thread
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
    secret: bytes, base: str, *, repository: str, account: int, oid: str, size: int, part_size: int = 0
) -> dict[str, Any]:
    """Where to upload a file; in parts if it is larger than `part_size` bytes. 0: never in parts."""
    claims: Claims = {"repository": repository, "account": account, "oid": oid, "size": size}
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
async def put_file(request: Request, oid: Oid, ticket: Ticket, hub: HubDep, options: OptionsDep) -> Response:
    """Upload a whole file."""
    claims = _claims(hub, WHOLE, ticket, oid)
    await run_in_threadpool(_require_quota, hub, options, claims, int(claims["size"]))
    async with spooled(request, hub.blobs.partial, int(claims["size"])) as sent:
        _complete(sent.size, int(claims["size"]))
        if sent.sha256 != oid:
            raise Invalid(f"the upload has sha256 {sent.sha256[:12]}…, expected {oid[:12]}…: send it again")
        await store_in_thread(hub.uploads.store, int(claims["account"]), sent.path, oid, sent.size)
    return Response()


@router.put("/lfs/{oid}/parts/{number}")
async def put_part(
    request: Request,
    oid: Oid,
    number: Annotated[int, Path(ge=1)],
    ticket: Ticket,
    hub: HubDep,
    options: OptionsDep,
) -> Response:
    """Upload a part of a file."""
    claims = _claims(hub, PART, ticket, oid)
    if claims["number"] != number:
        raise Forbidden(f"the ticket is for part {claims['number']}, not {number}")
    others = await run_in_threadpool(parts_of(hub).size, int(claims["account"]), but=(oid, number))
    await run_in_threadpool(_require_quota, hub, options, claims, others + int(claims["length"]))
    async with spooled(request, hub.blobs.partial, int(claims["length"])) as sent:
        _complete(sent.size, int(claims["length"]))
        await store_in_thread(parts_of(hub).put, int(claims["account"]), oid, number, sent.path)
    return Response(headers={"ETag": f'"{sent.sha256}"'})


@router.post("/lfs/{oid}/parts")
async def join_parts(oid: Oid, ticket: Ticket, done: Completion, hub: HubDep) -> JSONResponse:
    """Join the parts of a file. Clients may repeat this if the response was lost."""
    claims = _claims(hub, PARTS, ticket, oid)
    if done.oid != oid:
        raise Forbidden(f"the ticket is for {oid[:12]}…, not {done.oid[:12]!r}")
    await store_in_thread(_join, hub, claims, oid)
    return JSONResponse({})


def _join(hub: SharedHub, claims: Claims, oid: str) -> None:
    account, size = int(claims["account"]), int(claims["size"])
    if hub.uploads.sent(account, oid) == size:
        return
    with partial_folder(hub.blobs.partial) as folder:
        path = folder / "file"
        _complete(parts_of(hub).join(account, oid, int(claims["count"]), path), size)
        hub.uploads.store(account, path, oid, size)


def parts_of(hub: SharedHub) -> Parts:
    """The parts that were uploaded to a hub."""
    return Parts(hub.blobs.partial.parent / "parts")


def _claims(hub: SharedHub, purpose: str, ticket: str, oid: str) -> Claims:
    claims = signed(hub.secret, purpose, ticket)
    if claims["oid"] != oid:
        raise Forbidden(f"the ticket is not for {oid[:12]}…")
    return claims


def _require_quota(hub: SharedHub, options: ServerOptions, claims: Claims, more: int) -> None:
    """Check the quota again: a client may have requested many URLs before its first upload."""
    namespace = str(claims["repository"]).partition("/")[0]
    require_quota(hub, options, namespace, int(claims["account"]), more)


def _complete(size: int, expected: int) -> None:
    if size != expected:
        raise Invalid(f"received {size} bytes, expected {expected}: send it again")
