"""Who the client is, and access to gated repositories: asking for it, and answering."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts import Identity
from kcard.hub.db.models import AccessState, Account, Repository
from kcard.hub.errors import Invalid, NotFound
from kcard.hub.server.dependencies import (
    AdministeredRepository,
    HubDep,
    RequiredIdentity,
    WebRepository,
)
from kcard.hub.server.responses import Json, format_time
from kcard.hub.services import HubServices

router = APIRouter(tags=["access"])

# Fields that clients expect for every account, of features that this hub does not have.
DEFAULTS: Json = {"avatarUrl": "", "isPro": False}


@router.get("/api/whoami-v2")
def whoami(identity: RequiredIdentity) -> JSONResponse:
    """Describe the client's user and token.

    `auth.accessToken.role` is the scope of the token: read, write or admin.
    """
    return JSONResponse(
        {
            "type": "user",
            "id": f"{identity.account_id:024x}",
            "name": identity.name,
            "fullname": identity.fullname or identity.name,
            "email": identity.email,
            "emailVerified": True,
            "canPay": False,
            "periodEnd": None,
            **DEFAULTS,
            "orgs": [
                {"type": "org", "id": name, "name": name, "fullname": name, "roleInOrg": role, **DEFAULTS}
                for name, role in identity.organisations.items()
            ],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": identity.token_name, "role": identity.scope},
            },
        }
    )


# The protocol's names for the states of a request.
Status = Literal["pending", "accepted", "rejected"]
STATES: dict[Status, AccessState] = {"pending": "pending", "accepted": "granted", "rejected": "rejected"}
STATUSES: dict[AccessState, Status] = {state: status for status, state in STATES.items()}
REQUESTS = "/api/{types}/{namespace}/{name}/user-access-request"


class AccessDecision(BaseModel):
    """The answer to a request, which is identified by its user or its id."""

    user: str | None = Field(None, max_length=200)
    requestId: str | None = Field(None, max_length=200)  # noqa: N815 # the protocol's
    status: Status


class Grant(BaseModel):
    """The user to whom access is granted."""

    user: str = Field(max_length=200)


@router.post("/{namespace}/{name}/ask-access")
@router.post("/datasets/{namespace}/{name}/ask-access")
def ask(repository: WebRepository, hub: HubDep, identity: RequiredIdentity) -> JSONResponse:
    """Ask for access to a gated model.

    `status` is accepted, pending or rejected. Asking again does not change it.
    """
    require_gated(repository)
    state = hub.repositories.request_access(repository, identity.account_id)
    return JSONResponse({"status": STATUSES[state]})


@router.get(REQUESTS + "/{status}")
def requests(hub: HubDep, repository: AdministeredRepository, status: Status) -> JSONResponse:
    """List requests for access, for administrators of the repository."""
    require_gated(repository)
    return JSONResponse(
        [
            {
                "requestId": request.account,
                "user": {"user": request.account, "fullname": request.account},
                "status": STATUSES[request.state],
                "timestamp": format_time(request.asked),
            }
            for request in hub.repositories.requests(repository)
            if request.state == STATES[status]
        ]
    )


@router.post(REQUESTS + "/handle")
def handle(
    hub: HubDep, repository: AdministeredRepository, identity: RequiredIdentity, decision: AccessDecision
) -> JSONResponse:
    """Answer a request for access; the status pending takes an answer back."""
    user = _find_user(hub, decision.user or decision.requestId or "")
    require_gated(repository)
    if not any(request.account == user.name for request in hub.repositories.requests(repository)):
        raise NotFound("object", f"{user.name} has not asked for access to {repository.name}")
    return _decide(hub, repository, user, decision.status, identity)


@router.post(REQUESTS + "/grant")
def grant(
    hub: HubDep, repository: AdministeredRepository, identity: RequiredIdentity, grant: Grant
) -> JSONResponse:
    """Grant access to a user, with or without a request."""
    user = _find_user(hub, grant.user)
    require_gated(repository)
    return _decide(hub, repository, user, "accepted", identity)


def _decide(
    hub: HubServices, repository: Repository, user: Account, status: Status, identity: Identity
) -> JSONResponse:
    hub.repositories.grant(repository, user.id, STATES[status])
    hub.events.add(identity.name, "access.answered", repository.name, user=user.name, answer=status)
    return JSONResponse({"status": status})


def _find_user(hub: HubServices, name: str) -> Account:
    account = hub.accounts.get(name)
    if account.kind != "user":
        raise Invalid(f"{account.name} is an organisation: grant access to a user")
    return account


def require_gated(repository: Repository) -> None:
    """Raise Invalid unless the repository is gated."""
    if repository.gated == "no":
        raise Invalid(f"{repository.name} is not gated: everyone who can read it can download its files")
