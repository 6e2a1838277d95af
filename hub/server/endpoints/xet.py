"""Uploads by Xet, which newer clients prefer: a token, xorbs, then shards. Downloads are plain HTTP.

Each account has its own upload URL. Clients remember by URL what they have sent, so that they never refer to another
account's uploads, and send everything again after the xorbs are lost and the URL changes.
"""

import hmac
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from kcard.hub.refusals import NotThere, Unknown, Unsupported
from kcard.hub.server.dependencies import (
    HubDep,
    OptionsDep,
    RequiredIdentity,
    WritableRepository,
    base_url,
)
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.writing.quota import remaining, require_xorb_quota
from kcard.hub.server.writing.signing import Claims, sign, signed
from kcard.hub.server.writing.spool import spooled
from kcard.hub.server.writing.turns import store_in_thread
from kcard.hub.shared import SharedHub
from kcard.hub.xet.xorbs import LARGEST_XORB

__all__ = ["router"]

router = APIRouter(tags=["xet"])

PURPOSE = "xet"
SECONDS = 900
LARGEST_SHARD = 80 << 20  # clients cut them at 64 MiB


def _ticket(request: Request, hub: HubDep, address: str) -> Claims:
    """The claims of a Xet request's token, which works only with the URL that was issued with it."""
    kind, _, ticket = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        raise Unknown("invalid Authorization header: use 'Bearer TOKEN' with a token of xet-write-token")
    claims = signed(hub.secret, PURPOSE, ticket.strip())
    if not hmac.compare_digest(address.encode(), _address(hub, int(claims["account"])).encode()):
        raise NotThere("object", "the upload URL has changed: start the upload again")
    return claims


Ticket = Annotated[Claims, Depends(_ticket)]


@router.get("/api/{types}/{namespace}/{name}/xet-write-token/{revision}")
def write_token(
    request: Request,
    repository: WritableRepository,
    revision: Segment,  # noqa: ARG001 (uploads can be committed to any revision)
    identity: RequiredIdentity,
    hub: HubDep,
    options: OptionsDep,
) -> JSONResponse:
    """The upload URL and a token for it."""
    if not options.xet:
        raise Unsupported("this hub does not accept uploads by Xet: set HF_HUB_DISABLE_XET=1")
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
    hub: HubDep,
    options: OptionsDep,
) -> JSONResponse:
    """Upload a xorb: packed chunks."""
    account, namespace = int(ticket["account"]), str(ticket["namespace"])
    async with spooled(request, hub.blobs.partial, LARGEST_XORB) as sent:
        await run_in_threadpool(require_xorb_quota, hub, options, namespace, account, sent.size)
        new = await store_in_thread(hub.ingest.put_xorb, account, xorb, sent.path)
    return JSONResponse({"was_inserted": new})


@router.post("/xet/{address}/v1/shards")
async def put_shard(request: Request, ticket: Ticket, hub: HubDep, options: OptionsDep) -> JSONResponse:
    """Upload a shard, and assemble the files that it describes."""
    account, namespace = int(ticket["account"]), str(ticket["namespace"])
    left = await run_in_threadpool(remaining, hub, options, namespace, account)
    async with spooled(request, hub.blobs.partial, LARGEST_SHARD) as sent:
        await store_in_thread(
            hub.ingest.put_shard, account, sent.path, largest=options.max_file_size, room=left
        )
    return JSONResponse({"result": 1})


def _address(hub: SharedHub, account_id: int) -> str:
    return hmac.digest(hub.secret, f"{hub.ingest.xorbs.name}/{account_id}".encode(), "sha256").hex()[:20]
