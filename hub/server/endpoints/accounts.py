"""Accounts: the client's own, other users and organisations, and the storage that they use."""

from collections.abc import Iterator
from typing import get_args

from fastapi import APIRouter
from starlette.responses import JSONResponse

from kcard.hub.accounts.accounts import Account
from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import NotThere
from kcard.hub.repositories.listing import MOST, ListQuery
from kcard.hub.repositories.values import Repository, Type
from kcard.hub.server.dependencies import HubDep, RequiredIdentity
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading.repository_json import UNAUTHORIZED, Json, time
from kcard.hub.shared import SharedHub

__all__ = ["router"]

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
            "orgs": [_organisation(name, role) for name, role in identity.organisations.items()],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": identity.token_name, "role": identity.scope},
            },
        }
    )


def _organisation(name: str, role: str) -> Json:
    return {"type": "org", "id": name, "name": name, "fullname": name, "roleInOrg": role, **DEFAULTS}


@router.get(
    "/api/users/{user}/overview",
    summary="Describe a user",
    response_description="Name and full name",
    responses={404: {"description": "No such user"}, **UNAUTHORIZED},
)
def user(hub: HubDep, _identity: RequiredIdentity, user: Segment) -> JSONResponse:
    """Requires a token. The email address is not included."""
    return JSONResponse(_person(_of_kind(hub.accounts.get(user), "user")))


@router.get(
    "/api/organizations/{organisation}/overview",
    summary="Describe an organisation",
    response_description="Name, full name and number of members",
    responses={404: {"description": "No such organisation"}, **UNAUTHORIZED},
)
def organisation(hub: HubDep, _identity: RequiredIdentity, organisation: Segment) -> JSONResponse:
    """Requires a token."""
    account = _of_kind(hub.accounts.get(organisation), "organisation")
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
    return JSONResponse([_person(hub.accounts.get(name)) | {"role": role} for name, role in roles.items()])


def _of_kind(account: Account, kind: str) -> Account:
    if account.kind != kind:
        raise NotThere("account", f"{account.name} is not a{'n' * (kind == 'organisation')} {kind}")
    return account


def _person(account: Account) -> Json:
    return {"type": "user", "user": account.name, "fullname": account.fullname or account.name, **DEFAULTS}


@router.get(
    "/api/settings/repositories",
    summary="List the client's own repositories with their sizes",
    response_description=SIZES,
    responses=UNAUTHORIZED,
)
def own(hub: HubDep, identity: RequiredIdentity) -> JSONResponse:
    """Models and datasets."""
    return _sizes(hub, identity.name, identity)


@router.get(
    "/api/organizations/{organisation}/settings/repositories",
    summary="List the repositories of an organisation with their sizes",
    response_description=SIZES,
    responses={404: {"description": "No such organisation"}, **UNAUTHORIZED},
)
def of(hub: HubDep, identity: RequiredIdentity, organisation: Segment) -> JSONResponse:
    """The ones that the client may read."""
    return _sizes(hub, hub.accounts.get(organisation).name, identity)


def _sizes(hub: SharedHub, author: str, identity: Identity) -> JSONResponse:
    found = sorted(_of(hub, author, identity), key=lambda repository: -repository.size)
    total = sum(repository.size for repository in found)
    return JSONResponse([_size(repository, total) for repository in found])


def _of(hub: SharedHub, author: str, identity: Identity) -> Iterator[Repository]:
    for kind in get_args(Type):
        cursor: str | None = None
        while True:
            query = ListQuery(kind, author=author, limit=MOST, cursor=cursor)
            page, cursor = hub.listing.page(query, identity)
            yield from page
            if cursor is None:
                break


def _size(repository: Repository, total: int) -> Json:
    return {
        "id": repository.name,
        "type": repository.type,
        "updatedAt": time(repository.modified),
        "visibility": "private" if repository.private else "public",
        "storage": repository.size,
        "storagePercent": round(100 * repository.size / total, 2) if total else 0,
    }
