"""Accounts, organisations and access to repositories."""

from typing import Literal, get_args

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.hub.accounts import Identity
from kcard.hub.db.models import AccessState, Account, Repository, RepositoryType
from kcard.hub.errors import Invalid, NotFound
from kcard.hub.listing import MAX_PAGE_SIZE, ListQuery
from kcard.hub.server.dependencies import (
    AdministeredRepository,
    HubDep,
    RequiredIdentity,
    Segment,
    WebRepository,
)
from kcard.hub.server.responses import UNAUTHORIZED, Json, Responses, format_time
from kcard.hub.services import HubServices

router = APIRouter(tags=["read"])

# Fields that clients expect for every account, of features that this hub does not have.
DEFAULTS: Json = {"avatarUrl": "", "isPro": False}
SIZES = "Repositories with the size in bytes of their branch main, largest first"


@router.get(
    "/api/whoami-v2",
    summary="Describe the client's user and token",
    response_description="The user, their organisations, and the scope of the token",
    responses=UNAUTHORIZED,
)
def whoami(identity: RequiredIdentity) -> JSONResponse:
    """`auth.accessToken.role` is the scope of the token: read, write or admin."""
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


@router.get(
    "/api/users/{user}/overview",
    summary="Describe a user",
    response_description="Name and full name",
    responses={404: {"description": "No such user"}, **UNAUTHORIZED},
)
def user(hub: HubDep, _identity: RequiredIdentity, user: Segment) -> JSONResponse:
    """Requires a token. The email address is not included."""
    return JSONResponse(_describe_user(_require_kind(hub.accounts.get(user), "user")))


@router.get(
    "/api/organizations/{organisation}/overview",
    summary="Describe an organisation",
    response_description="Name, full name and number of members",
    responses={404: {"description": "No such organisation"}, **UNAUTHORIZED},
)
def organisation(hub: HubDep, _identity: RequiredIdentity, organisation: Segment) -> JSONResponse:
    """Requires a token."""
    account = _require_kind(hub.accounts.get(organisation), "organisation")
    people = len(hub.accounts.members(account.name))
    return JSONResponse(
        {"name": account.name, "fullname": account.fullname or account.name, "numUsers": people}
    )


@router.get(
    "/api/organizations/{organisation}/members",
    summary="List the members of an organisation",
    response_description="Users with their roles",
    responses={404: {"description": "No such organisation"}, **UNAUTHORIZED},
)
def members(hub: HubDep, _identity: RequiredIdentity, organisation: Segment) -> JSONResponse:
    """Requires a token."""
    roles = hub.accounts.members(organisation)
    return JSONResponse(
        [_describe_user(hub.accounts.get(name)) | {"role": role} for name, role in roles.items()]
    )


def _require_kind(account: Account, kind: str) -> Account:
    if account.kind != kind:
        raise NotFound("account", f"{account.name} is not a{'n' * (kind == 'organisation')} {kind}")
    return account


def _describe_user(account: Account) -> Json:
    return {"type": "user", "user": account.name, "fullname": account.fullname or account.name, **DEFAULTS}


@router.get(
    "/api/settings/repositories",
    summary="List the client's own repositories with their sizes",
    response_description=SIZES,
    responses=UNAUTHORIZED,
)
def own(hub: HubDep, identity: RequiredIdentity) -> JSONResponse:
    """Models and datasets."""
    return _list_sizes(hub, identity.name, identity)


@router.get(
    "/api/organizations/{organisation}/settings/repositories",
    summary="List the repositories of an organisation with their sizes",
    response_description=SIZES,
    responses={404: {"description": "No such organisation"}, **UNAUTHORIZED},
)
def of(hub: HubDep, identity: RequiredIdentity, organisation: Segment) -> JSONResponse:
    """The ones that the client may read."""
    return _list_sizes(hub, hub.accounts.get(organisation).name, identity)


def _list_sizes(hub: HubServices, author: str, identity: Identity) -> JSONResponse:
    repositories: list[Repository] = []
    for kind in get_args(RepositoryType):
        cursor: str | None = None
        while True:
            query = ListQuery(kind, author=author, limit=MAX_PAGE_SIZE, cursor=cursor)
            page, cursor = hub.listing.page(query, identity)
            repositories += page
            if cursor is None:
                break
    repositories.sort(key=lambda repository: -repository.size)
    total = sum(repository.size for repository in repositories)
    return JSONResponse(
        [
            {
                "id": repository.name,
                "type": repository.type,
                "updatedAt": format_time(repository.modified),
                "visibility": "private" if repository.private else "public",
                "storage": repository.size,
                "storagePercent": round(100 * repository.size / total, 2) if total else 0,
            }
            for repository in repositories
        ]
    )


# Requests for access to gated repositories.

access_router = APIRouter(tags=["access"])

# The protocol's names for the states of a request.
Status = Literal["pending", "accepted", "rejected"]
STATES: dict[Status, AccessState] = {"pending": "pending", "accepted": "granted", "rejected": "rejected"}
STATUSES: dict[AccessState, Status] = {state: status for status, state in STATES.items()}
REQUESTS = "/api/{types}/{namespace}/{name}/user-access-request"
REFUSED: Responses = {
    400: {"description": "The repository is not gated"},
    403: {"description": "The client does not administer the repository"},
    404: {"description": "No such repository, user or request"},
}


class AccessDecision(BaseModel):
    """The answer to a request, which is identified by its user or its id."""

    user: str | None = Field(None, max_length=200)
    requestId: str | None = Field(None, max_length=200)  # noqa: N815 # the protocol's
    status: Status


class Grant(BaseModel):
    """The user to whom access is granted."""

    user: str = Field(max_length=200)


@access_router.post(
    "/{namespace}/{name}/ask-access",
    summary="Ask for access to a gated model",
    response_description="Access is granted, pending or rejected",
    responses=REFUSED,
)
@access_router.post(
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


@access_router.get(
    REQUESTS + "/{status}",
    summary="List requests for access",
    response_description="The requests with that status",
    responses=REFUSED,
)
def requests(hub: HubDep, repository: AdministeredRepository, status: Status) -> JSONResponse:
    """For administrators of the repository. Email addresses are not included."""
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


@access_router.post(
    REQUESTS + "/handle",
    summary="Answer a request for access",
    response_description="The new status",
    responses=REFUSED,
)
def handle(
    hub: HubDep, repository: AdministeredRepository, identity: RequiredIdentity, decision: AccessDecision
) -> JSONResponse:
    """The status pending takes an answer back."""
    user = find_user(hub, decision.user or decision.requestId or "")
    require_gated(repository)
    if not any(request.account == user.name for request in hub.repositories.requests(repository)):
        raise NotFound("object", f"{user.name} has not asked for access to {repository.name}")
    decide_access(hub, repository, user, STATES[decision.status], identity)
    return JSONResponse({"status": decision.status})


@access_router.post(
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
    decide_access(hub, repository, user, "granted", identity)
    return JSONResponse({"status": STATUSES["granted"]})


def decide_access(
    hub: HubServices, repository: Repository, user: Account, state: AccessState, identity: Identity
) -> None:
    """Set the access of a user, with or without a request."""
    hub.repositories.grant(repository, user.id, state)
    hub.events.add(identity.name, "access.answered", repository.name, user=user.name, answer=STATUSES[state])


def find_user(hub: HubServices, name: str) -> Account:
    """Return the user of that name. Raises NotFound, or Invalid for an organisation."""
    account = hub.accounts.get(name)
    if account.kind != "user":
        raise Invalid(f"{account.name} is an organisation: grant access to a user")
    return account


def require_gated(repository: Repository) -> None:
    """Raise Invalid unless the repository is gated."""
    if repository.gated == "no":
        raise Invalid(f"{repository.name} is not gated: everyone who can read it can download its files")
