"""Uploads by Xet, which newer clients choose by themselves: a token, xorbs, then shards. Downloads are plain HTTP.

Each account has an address of its own. Clients remember by address what they have sent; so nobody is told to use
what another account sent, and everybody starts afresh when the xorbs are gone.
"""

import hmac
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from kcard.hub.refusals import NotThere, Unknown, Unsupported
from kcard.hub.server.asking import KnownIdentity, Options, TheHub, base_url
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.writing.room import require_xorb_room, room
from kcard.hub.server.writing.signing import Claims, sign, signed
from kcard.hub.server.writing.spool import spooled
from kcard.hub.server.writing.writable import Writable
from kcard.hub.shared import SharedHub
from kcard.hub.xet.xorbs import LARGEST_XORB

__all__ = ["router"]

router = APIRouter(tags=["xet"])

PURPOSE = "xet"
SECONDS = 900
LARGEST_SHARD = 80 << 20  # clients cut them at 64 MiB


def _ticket(request: Request, hub: TheHub, address: str) -> Claims:
    """What the token of a Xet request says; it works at the address that was given out with it."""
    kind, _, ticket = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        raise Unknown("the Authorization header must be: Bearer TOKEN, with a token of xet-write-token")
    claims = signed(hub.secret, PURPOSE, ticket.strip())
    if not hmac.compare_digest(address.encode(), _address(hub, int(claims["account"])).encode()):
        raise NotThere("object", "the hub has another address for these uploads now: upload again")
    return claims


Ticket = Annotated[Claims, Depends(_ticket)]


@router.get("/api/{types}/{namespace}/{name}/xet-write-token/{revision}")
def write_token(
    request: Request,
    repository: Writable,
    revision: Segment,  # noqa: ARG001 (what was sent can be committed to any)
    identity: KnownIdentity,
    hub: TheHub,
    options: Options,
) -> JSONResponse:
    """Where to upload to, and with which token, for a while."""
    if not options.xet:
        raise Unsupported("this hub takes no uploads by Xet: set HF_HUB_DISABLE_XET=1")
    claims: Claims = {"account": identity.account_id, "namespace": repository.namespace}
    token = sign(hub.secret, PURPOSE, claims, SECONDS)
    until = int(signed(hub.secret, PURPOSE, token)["until"])
    url = f"{base_url(request, options)}/xet/{_address(hub, identity.account_id)}"
    return JSONResponse(
        {"casUrl": url, "exp": until, "accessToken": token},
        headers={
            "X-Xet-Cas-Url": url,
            "X-Xet-Token-Expiration": str(until),
            "X-Xet-Access-Token": token,
            "Cache-Control": "no-store",
        },
    )


@router.post("/xet/{address}/v1/xorbs/default/{xorb}")
async def put_xorb(
    request: Request,
    xorb: Annotated[str, Path(pattern="^[0-9a-f]{64}$")],
    ticket: Ticket,
    hub: TheHub,
    options: Options,
) -> JSONResponse:
    """Take packed chunks."""
    account, namespace = int(ticket["account"]), str(ticket["namespace"])
    async with spooled(request, hub.blobs.partial, LARGEST_XORB) as sent:
        await run_in_threadpool(require_xorb_room, hub, options, namespace, account, sent.size)
        new = await run_in_threadpool(hub.ingest.put_xorb, account, xorb, sent.path)
    return JSONResponse({"was_inserted": new})


@router.post("/xet/{address}/v1/shards")
async def put_shard(request: Request, ticket: Ticket, hub: TheHub, options: Options) -> JSONResponse:
    """Put together the files that a shard describes."""
    account, namespace = int(ticket["account"]), str(ticket["namespace"])
    left = await run_in_threadpool(room, hub, options, namespace, account)
    async with spooled(request, hub.blobs.partial, LARGEST_SHARD) as sent:
        await run_in_threadpool(
            hub.ingest.put_shard, account, sent.path, largest=options.max_file_size, room=left
        )
    return JSONResponse({"result": 1})


def _address(hub: SharedHub, account_id: int) -> str:
    return hmac.digest(hub.secret, f"{hub.ingest.xorbs.name}/{account_id}".encode(), "sha256").hex()[:20]
