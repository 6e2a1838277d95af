"""Users, organisations, and the sizes of their repositories."""

from typing import get_args

from fastapi import APIRouter
from starlette.responses import JSONResponse

from kcard.hub.accounts import Identity
from kcard.hub.db.models import Account, Repository, RepositoryType
from kcard.hub.errors import NotFound
from kcard.hub.repositories import MOST, ListQuery
from kcard.hub.server.dependencies import HubDep, RequiredIdentity, Segment
from kcard.hub.server.responses import Json, format_time
from kcard.hub.services import HubServices

router = APIRouter(tags=["read"])

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


@router.get("/api/users/{user}/overview")
def user(hub: HubDep, _identity: RequiredIdentity, user: Segment) -> JSONResponse:
    """Describe a user, without the email address, to everyone with a token."""
    account = hub.accounts.get(user)
    if account.kind != "user":
        raise NotFound("account", f"{account.name} is not a user")
    return JSONResponse(_describe_user(account))


@router.get("/api/organizations/{organisation}/overview")
def organisation(hub: HubDep, _identity: RequiredIdentity, organisation: Segment) -> JSONResponse:
    """Describe an organisation to everyone with a token."""
    account = hub.accounts.get(organisation)
    if account.kind != "organisation":
        raise NotFound("account", f"{account.name} is not an organisation")
    count = len(hub.accounts.members(account.name))
    return JSONResponse(
        {"name": account.name, "fullname": account.fullname or account.name, "numUsers": count}
    )


@router.get("/api/organizations/{organisation}/members")
def members(hub: HubDep, _identity: RequiredIdentity, organisation: Segment) -> JSONResponse:
    """List the members of an organisation to everyone with a token."""
    roles = hub.accounts.members(organisation)
    return JSONResponse(
        [_describe_user(hub.accounts.get(name)) | {"role": role} for name, role in roles.items()]
    )


def _describe_user(account: Account) -> Json:
    return {"type": "user", "user": account.name, "fullname": account.fullname or account.name, **DEFAULTS}


@router.get("/api/settings/repositories")
def own(hub: HubDep, identity: RequiredIdentity) -> JSONResponse:
    """List the client's own models and datasets with their sizes in bytes, largest first."""
    return _list_sizes(hub, identity.name, identity)


@router.get("/api/organizations/{organisation}/settings/repositories")
def of(hub: HubDep, identity: RequiredIdentity, organisation: Segment) -> JSONResponse:
    """List the models and datasets of an organisation that the client may read, with their sizes in bytes."""
    return _list_sizes(hub, hub.accounts.get(organisation).name, identity)


def _list_sizes(hub: HubServices, author: str, identity: Identity) -> JSONResponse:
    repositories: list[Repository] = []
    for kind in get_args(RepositoryType):
        cursor: str | None = None
        while True:
            query = ListQuery(kind, author=author, limit=MOST, cursor=cursor)
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
