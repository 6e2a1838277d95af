"""Who may have the files of a gated repository: asked for, granted, refused."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts.accounts import Account
from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Invalid, NotThere
from kcard.hub.repositories.access import AccessRequest, State
from kcard.hub.repositories.values import Repository
from kcard.hub.server.asking import KnownIdentity, TheHub, found
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading.repository_json import Answers, Json, time
from kcard.hub.server.writing.writable import Administered
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["access"])

# What the protocol calls the states of a request.
Status = Literal["pending", "accepted", "rejected"]
STATES: dict[Status, State] = {"pending": "pending", "accepted": "granted", "rejected": "rejected"}
REFUSED: Answers = {
    400: {"description": "The repository is not gated"},
    403: {"description": "Whoever asks does not administer it"},
    404: {"description": "No such repository, user or request"},
}


class Decision(BaseModel):
    """An answer to a request, which is named by its user or by its id."""

    user: str | None = Field(None, max_length=200)
    requestId: str | None = Field(None, max_length=200)  # noqa: N815 # the protocol's
    status: Status


class Grant(BaseModel):
    """Whom access is granted to."""

    user: str = Field(max_length=200)


@router.post(
    "/{namespace}/{name}/ask-access",
    summary="Ask for the files of a gated model",
    responses={200: {"description": "Granted at once, or waiting for an answer"}, **REFUSED},
)
def ask_model(namespace: Segment, name: Segment, hub: TheHub, identity: KnownIdentity) -> JSONResponse:
    """`status` says accepted, pending, or rejected: asking again changes no answer."""
    return _ask(hub, found(hub, "model", f"{namespace}/{name}", identity), identity)


@router.post(
    "/datasets/{namespace}/{name}/ask-access",
    summary="Ask for the files of a gated dataset",
    responses={200: {"description": "Granted at once, or waiting for an answer"}, **REFUSED},
)
def ask_dataset(namespace: Segment, name: Segment, hub: TheHub, identity: KnownIdentity) -> JSONResponse:
    """`status` says accepted, pending, or rejected: asking again changes no answer."""
    return _ask(hub, found(hub, "dataset", f"{namespace}/{name}", identity), identity)


def _ask(hub: SharedHub, repository: Repository, identity: Identity) -> JSONResponse:
    _require_gated(repository)
    state = hub.repositories.request_access(repository, identity.account_id)
    return JSONResponse({"status": _status(state)})


@router.get(
    "/api/{types}/{namespace}/{name}/user-access-request/{status}",
    summary="List requests for access",
    responses={200: {"description": "Those in that state"}, **REFUSED},
)
def requests(hub: TheHub, repository: Administered, status: Status) -> JSONResponse:
    """For those who administer the repository; addresses are not told."""
    _require_gated(repository)
    asked = [request for request in hub.repositories.requests(repository) if request.state == STATES[status]]
    return JSONResponse([_request(request) for request in asked])


@router.post(
    "/api/{types}/{namespace}/{name}/user-access-request/handle",
    summary="Answer a request for access",
    responses={200: {"description": "It is answered"}, **REFUSED},
)
def handle(
    hub: TheHub, repository: Administered, identity: KnownIdentity, decision: Decision
) -> JSONResponse:
    """pending takes an answer back."""
    user = _user(hub, decision.user or decision.requestId or "")
    _require_gated(repository)
    if not any(request.account == user.name for request in hub.repositories.requests(repository)):
        raise NotThere("object", f"{user.name} did not ask for access to {repository.name}")
    return _answer(hub, repository, user, STATES[decision.status], identity)


@router.post(
    "/api/{types}/{namespace}/{name}/user-access-request/grant",
    summary="Grant access to a user",
    responses={200: {"description": "It is granted"}, **REFUSED},
)
def grant(hub: TheHub, repository: Administered, identity: KnownIdentity, grant: Grant) -> JSONResponse:
    """Whether or not the user asked."""
    user = _user(hub, grant.user)
    _require_gated(repository)
    return _answer(hub, repository, user, "granted", identity)


def _answer(
    hub: SharedHub, repository: Repository, user: Account, state: State, identity: Identity
) -> JSONResponse:
    hub.repositories.grant(repository, user.id, state)
    hub.events.add(identity.name, "access.answered", repository.name, user=user.name, answer=_status(state))
    return JSONResponse({"status": _status(state)})


def _user(hub: SharedHub, name: str) -> Account:
    account = hub.accounts.get(name)
    if account.kind != "user":
        raise Invalid(f"{account.name} is an organisation: access is granted to users")
    return account


def _require_gated(repository: Repository) -> None:
    if repository.gated == "no":
        raise Invalid(f"{repository.name} is not gated: its files are there for everyone who may see it")


def _status(state: State) -> Status:
    return next(status for status, each in STATES.items() if each == state)


def _request(request: AccessRequest) -> Json:
    user = {"user": request.account, "fullname": request.account}
    return {
        "requestId": request.account,
        "user": user,
        "status": _status(request.state),
        "timestamp": time(request.asked),
    }
