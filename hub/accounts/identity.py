"""Who asks, as a token proved it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["Identity", "Role", "Scope"]

Scope: TypeAlias = Literal["read", "write", "admin"]
Role: TypeAlias = Literal["read", "write", "admin"]


@dataclass(frozen=True)
class Identity:
    """A user, with what the token that was presented lets through.

    admin           whether the user administers the hub
    scope           the most that the token may do
    repository_id   the only repository that the token works for; None: every one
    organisations   the user's role in each organisation, by its name
    """

    account_id: int
    name: str
    admin: bool = False
    scope: Scope = "read"
    repository_id: int | None = None
    organisations: Mapping[str, Role] = field(default_factory=dict)
    token_name: str = ""
    fullname: str = ""
    email: str = ""
