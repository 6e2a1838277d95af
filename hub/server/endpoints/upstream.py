"""The client's own token for the hub that this one mirrors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts.upstream_tokens import UpstreamTokens
from kcard.hub.client.credentials import check_token
from kcard.hub.refusals import Unsupported
from kcard.hub.repositories.permissions import require_unbound
from kcard.hub.server.dependencies import RequiredIdentity
from kcard.hub.server.mirror.mirroring import Mirroring

__all__ = ["mirroring", "router", "store_token"]


@asynccontextmanager
async def _stopping(app: FastAPI) -> AsyncIterator[None]:
    yield
    if app.state.mirror is not None:
        await app.state.mirror.fetches.stop()


router = APIRouter(tags=["mirror"], lifespan=_stopping)
PATH = "/api/kcard/upstream-token"
RESPONSES: dict[int | str, dict[str, object]] = {501: {"description": "This hub mirrors no other"}}


class Token(BaseModel):
    """A token of the mirrored hub."""

    token: str = Field(max_length=512)


def mirroring(request: Request) -> Mirroring:
    """The mirror of this hub. Raises Unsupported if it has none."""
    if request.app.state.mirror is None:
        raise Unsupported("this hub mirrors no other: its administrator can start it with --upstream")
    found: Mirroring = request.app.state.mirror.mirroring
    return found


def store_token(found: Mirroring, account_id: int, token: str) -> None:
    """Store an account's token for the mirrored hub. Raises UsageError for one that belongs to another hub."""
    check_token(found.options.url, token)
    found.tokens.store(account_id, token)


@router.get(PATH, summary="Whether your token for the mirrored hub is stored", responses=RESPONSES)
def stored(request: Request, identity: RequiredIdentity) -> JSONResponse:
    """`upstream` is the URL of the mirrored hub."""
    tokens: UpstreamTokens = (found := mirroring(request)).tokens
    has = tokens.find(identity.account_id) is not None
    return JSONResponse({"upstream": found.options.url, "stored": has})


@router.put(PATH, summary="Store your own token for the mirrored hub", responses=RESPONSES)
def store(request: Request, identity: RequiredIdentity, token: Token) -> JSONResponse:
    """With it, this hub asks for what you may read there and others may not. It is sent to no other hub."""
    require_unbound(identity)
    store_token(mirroring(request), identity.account_id, token.token)
    return JSONResponse({})


@router.delete(PATH, summary="Delete your token for the mirrored hub", responses=RESPONSES)
def forget(request: Request, identity: RequiredIdentity) -> JSONResponse:
    """What was read with it is for you no longer readable here."""
    require_unbound(identity)
    mirroring(request).tokens.forget(identity.account_id)
    return JSONResponse({})
