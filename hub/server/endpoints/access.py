"""Requests for access to gated repositories."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts.accounts import Account
from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Invalid, NotThere
from kcard.hub.repositories.access import AccessRequest, State
from kcard.hub.repositories.values import Repository
from kcard.hub.server.dependencies import AdministeredRepository, HubDep, RequiredIdentity, WebRepository
from kcard.hub.server.reading.repository_json import Json, Responses, time
from kcard.hub.shared import SharedHub

__all__ = ["decide", "find_user", "require_gated", "router"]

router = APIRouter(tags=["access"])

# The protocol's names for the states of a request.
Status = Literal["pending", "accepted", "rejected"]
STATES: dict[Status, State] = {"pending": "pending", "accepted": "granted", "rejected": "rejected"}
STATUSES: dict[State, Status] = {state: status for status, state in STATES.items()}
REQUESTS = "/api/{types}/{namespace}/{name}/user-access-request"
REFUSED: Responses = {
    400: {"description": "The repository is not gated"},
    403: {"description": "The client does not administer the repository"},
    404: {"description": "No such repository, user or request"},
}


class Decision(BaseModel):
    """The answer to a request, which is identified by its user or its id."""

    user: str | None = Field(None, max_length=200)
    requestId: str | None = Field(None, max_length=200)  # noqa: N815 # the protocol's
    status: Status


class Grant(BaseModel):
    """The user who gets access."""

    user: str = Field(max_length=200)


@router.post(
    "/{namespace}/{name}/ask-access",
    summary="Ask for access to a gated model",
    response_description="Access is granted, pending or rejected",
    responses=REFUSED,
)
@router.post(
    "/datasets/{namespace}/{name}/ask-access",
    summary="Ask for access to a gated dataset",
    response_description="Access is granted, pending or rejected",
    responses=REFUSED,
)
def ask(repository: WebRepository, hub: HubDep, identity: RequiredIdentity) -> JSONResponse:
    """`status` is accepted, pending or rejected. Asking again does not change it."""
    require_gated(repository)
    state = hub.repositories.request_access(repository, identity.account_id)
    return JSONResponse({"status": STATUSES[state]})


@router.get(
    REQUESTS + "/{status}",
    summary="List requests for access",
    response_description="The requests with that status",
    responses=REFUSED,
)
def requests(hub: HubDep, repository: AdministeredRepository, status: Status) -> JSONResponse:
    """For administrators of the repository. Email addresses are not included."""
    require_gated(repository)
    found = [request for request in hub.repositories.requests(repository) if request.state == STATES[status]]
    return JSONResponse([_request(request) for request in found])


@router.post(
    REQUESTS + "/handle",
    summary="Answer a request for access",
    response_description="The new status",
    responses=REFUSED,
)
def handle(
    hub: HubDep, repository: AdministeredRepository, identity: RequiredIdentity, decision: Decision
) -> JSONResponse:
    """The status pending takes an answer back."""
    user = find_user(hub, decision.user or decision.requestId or "")
    require_gated(repository)
    if not any(request.account == user.name for request in hub.repositories.requests(repository)):
        raise NotThere("object", f"{user.name} has not asked for access to {repository.name}")
    decide(hub, repository, user, STATES[decision.status], identity)
    return JSONResponse({"status": decision.status})


@router.post(
    REQUESTS + "/grant",
    summary="Grant access to a user",
    response_description="The new status",
    responses=REFUSED,
)
def grant(
    hub: HubDep, repository: AdministeredRepository, identity: RequiredIdentity, grant: Grant
) -> JSONResponse:
    """With or without a request."""
    user = find_user(hub, grant.user)
    require_gated(repository)
    decide(hub, repository, user, "granted", identity)
    return JSONResponse({"status": STATUSES["granted"]})


def decide(hub: SharedHub, repository: Repository, user: Account, state: State, identity: Identity) -> None:
    """Set the access of a user, with or without a request."""
    hub.repositories.grant(repository, user.id, state)
    hub.events.add(identity.name, "access.answered", repository.name, user=user.name, answer=STATUSES[state])


def find_user(hub: SharedHub, name: str) -> Account:
    """The user of that name. Raises NotThere, Invalid for an organisation."""
    account = hub.accounts.get(name)
    if account.kind != "user":
        raise Invalid(f"{account.name} is an organisation: grant access to a user")
    return account


def require_gated(repository: Repository) -> None:
    """Raise Invalid unless the repository is gated."""
    if repository.gated == "no":
        raise Invalid(f"{repository.name} is not gated: everyone who can read it can download its files")


def _request(request: AccessRequest) -> Json:
    return {
        "requestId": request.account,
        "user": {"user": request.account, "fullname": request.account},
        "status": STATUSES[request.state],
        "timestamp": time(request.asked),
    }
