"""Who asks, and who others are."""

from fastapi import APIRouter
from starlette.responses import JSONResponse

from kcard.hub.accounts.accounts import Account
from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import NotThere
from kcard.hub.server.asking import KnownIdentity, TheHub
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading.repository_json import Answers, Json

__all__ = ["router"]

router = APIRouter(tags=["read"])

# What clients expect of every account and this hub does not have: pictures, subscriptions.
NOTHING: Json = {"avatarUrl": "", "isPro": False}
KNOWN: Answers = {401: {"description": "No token, or one that is not valid"}}


@router.get(
    "/api/whoami-v2",
    summary="Tell whose token this is",
    responses={200: {"description": "The user, their organisations, what the token may do"}, **KNOWN},
)
def whoami(identity: KnownIdentity) -> JSONResponse:
    """`auth.accessToken.role` is the token's scope: read, write or admin."""
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
            **NOTHING,
            "orgs": [_organisation(name, role) for name, role in identity.organisations.items()],
            "auth": {"type": "access_token", "accessToken": _token(identity)},
        }
    )


def _organisation(name: str, role: str) -> Json:
    return {"type": "org", "id": name, "name": name, "fullname": name, "roleInOrg": role, **NOTHING}


def _token(identity: Identity) -> Json:
    return {"displayName": identity.token_name, "role": identity.scope}


@router.get(
    "/api/users/{user}/overview",
    summary="Describe a user",
    responses={200: {"description": "Names"}, 404: {"description": "There is no such user"}, **KNOWN},
)
def user(hub: TheHub, _identity: KnownIdentity, user: Segment) -> JSONResponse:
    """For those who have an account here; addresses are not told."""
    return JSONResponse(_person(_of_kind(hub.accounts.get(user), "user")))


@router.get(
    "/api/organizations/{organisation}/overview",
    summary="Describe an organisation",
    responses={200: {"description": "Names"}, 404: {"description": "There is no such organisation"}, **KNOWN},
)
def organisation(hub: TheHub, _identity: KnownIdentity, organisation: Segment) -> JSONResponse:
    """For those who have an account here."""
    account = _of_kind(hub.accounts.get(organisation), "organisation")
    people = len(hub.accounts.members(account.name))
    return JSONResponse(
        {"name": account.name, "fullname": account.fullname or account.name, "numUsers": people}
    )


@router.get(
    "/api/organizations/{organisation}/members",
    summary="List the members of an organisation",
    responses={200: {"description": "Users"}, 404: {"description": "There is no such organisation"}, **KNOWN},
)
def members(hub: TheHub, _identity: KnownIdentity, organisation: Segment) -> JSONResponse:
    """For those who have an account here."""
    roles = hub.accounts.members(organisation)
    return JSONResponse([_person(hub.accounts.get(name)) | {"role": role} for name, role in roles.items()])


def _of_kind(account: Account, kind: str) -> Account:
    if account.kind != kind:
        raise NotThere("account", f"{account.name} is no {kind}")
    return account


def _person(account: Account) -> Json:
    return {"type": "user", "user": account.name, "fullname": account.fullname or account.name, **NOTHING}
