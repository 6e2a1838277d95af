"""The client's own account."""

from fastapi import APIRouter
from starlette.responses import JSONResponse

from kcard.hub.server.dependencies import RequiredIdentity
from kcard.hub.server.responses import Json

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
