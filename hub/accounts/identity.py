"""The identity that a token proves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["Identity", "Role", "Scope"]

Scope: TypeAlias = Literal["read", "write", "admin"]
Role: TypeAlias = Literal["read", "write", "admin"]


@dataclass(frozen=True)
class Identity:
    """A user with the limits of their token.

    admin           whether the user administers the hub
    scope           of the token
    repository_id   the only repository that the token is valid for; None: all
    token           refers to the token in tickets; it is not secret
    organisations   the user's roles by organisation name
    """

    account_id: int
    name: str
    admin: bool = False
    scope: Scope = "read"
    repository_id: int | None = None
    organisations: Mapping[str, Role] = field(default_factory=dict)
    token: str = ""
    token_name: str = ""
    fullname: str = ""
    email: str = ""
