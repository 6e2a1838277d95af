"""Uploads by Xet, which newer clients prefer: a token, xorbs, then shards. Downloads are plain HTTP.

Each account has its own upload URL, and so has each token for one repository. Clients remember by URL what they have
sent, so that they never refer to another account's uploads, and send everything again after the xorbs are lost and the
URL changes.
"""

import hmac
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from starlette.responses import JSONResponse

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import NotThere, Unknown, Unsupported
from kcard.hub.server.dependencies import (
    AccountTurnsDep,
    HubDep,
    OptionsDep,
    RequiredIdentity,
    WritableRepository,
    base_url,
)
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.writing.quota import declared, reserved
from kcard.hub.server.writing.signing import Claims, sign, signed
from kcard.hub.server.writing.spool import spooled
from kcard.hub.server.writing.write_threads import store_in_thread
from kcard.hub.shared import SharedHub
from kcard.hub.xet.xorbs import LARGEST_XORB, Sender

__all__ = ["router"]

router = APIRouter(tags=["xet"])

PURPOSE = "xet"
SECONDS = 900
LARGEST_SHARD = 80 << 20  # clients cut them at 64 MiB


@dataclass(frozen=True)
class _Upload:
    """Who uploads, for which repository."""

    identity: Identity
    repository_id: int

    @property
    def sender(self) -> Sender:
        return Sender(self.identity.account_id, self.repository_id, self.identity.repository_id is not None)


def _resumed(request: Request, hub: HubDep, address: str) -> _Upload:
    """The upload of a Xet request's token, which works only with the URL that was issued with it."""
    kind, _, ticket = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        raise Unknown("invalid Authorization header: use 'Bearer TOKEN' with a token of xet-write-token")
    claims = signed(hub.secret, PURPOSE, ticket.strip())
    identity = hub.tokens.resume(str(claims.get("token", "")))
    if not hmac.compare_digest(address.encode(), _address(hub, identity).encode()):
        raise NotThere("object", "the upload URL has changed: start the upload again")
    return _Upload(identity, int(claims["repository"]))


Resumed = Annotated[_Upload, Depends(_resumed)]


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
    claims: Claims = {"token": identity.token, "repository": repository.id}
    token = sign(hub.secret, PURPOSE, claims, SECONDS)
    until = int(signed(hub.secret, PURPOSE, token)["until"])
    url = f"{base_url(request, options)}/xet/{_address(hub, identity)}"
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
    upload: Resumed,
    hub: HubDep,
) -> JSONResponse:
    """Upload a xorb: packed chunks."""
    async with (
        reserved(hub, upload.repository_id, declared(request, LARGEST_XORB)),
        spooled(request, hub.blobs.partial, LARGEST_XORB) as sent,
    ):
        new = await store_in_thread(hub.ingest.put_xorb, upload.sender, xorb, sent.path)
    return JSONResponse({"was_inserted": new})


@router.post("/xet/{address}/v1/shards")
async def put_shard(
    request: Request, upload: Resumed, hub: HubDep, options: OptionsDep, turns: AccountTurnsDep
) -> JSONResponse:
    """Upload a shard, and assemble the files that it describes: one shard of an account after the other."""
    async with (
        turns.of(upload.identity.account_id),
        spooled(request, hub.blobs.partial, LARGEST_SHARD) as sent,
    ):
        await store_in_thread(
            hub.ingest.put_shard,
            upload.identity,
            sent.path,
            largest=options.max_file_size,
            repository_id=upload.repository_id,
        )
    return JSONResponse({"result": 1})


def _address(hub: SharedHub, identity: Identity) -> str:
    sender = f"{hub.ingest.xorbs.name}/{identity.account_id}"
    if identity.repository_id is not None:
        sender += f"/{identity.repository_id}"
    return hmac.digest(hub.secret, sender.encode(), "sha256").hex()[:20]
