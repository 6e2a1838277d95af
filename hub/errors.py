"""Errors of a shared hub. Only kcard.hub.server turns them into HTTP statuses.

HubError
└── Refused
    ├── Unauthenticated  the client is not authenticated: a missing or invalid token
    ├── Forbidden        the client is authenticated but lacks the permission
    ├── Gated            access to a repository's files must be requested
    ├── NotFound         no such account, repository, revision or entry
    ├── Conflict         it exists already
    ├── WrongParent      the branch is not at the expected commit
    ├── Invalid          an invalid path, name, file or metadata
    │   └── Dangerous    content that could run code or harm readers
    ├── TooLarge         a limit of bytes or files, or a quota, is exceeded
    ├── TooManyRequests  the rate limit is exceeded
    └── Unsupported      a part of the protocol that this hub lacks
"""

from typing import Literal

from kcard.errors import HubError


class Refused(HubError):
    """The message says in one line what was refused, why, and what to do. It contains no secrets."""


class Unauthenticated(Refused):
    """The client is not authenticated."""


class Forbidden(Refused):
    """The client lacks the permission."""


class Gated(Refused):
    """Access to the repository's files must be requested; `known`: whether the client is authenticated."""

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.known = known


class NotFound(Refused):
    """The object does not exist or is hidden from the client.

    `commit` is the commit in which an entry was looked up; `known`: whether the client is authenticated.
    """

    def __init__(
        self,
        what: Literal["account", "repository", "revision", "entry", "object"],
        message: str,
        *,
        commit: str | None = None,
        known: bool = True,
    ) -> None:
        super().__init__(message)
        self.what, self.commit, self.known = what, commit, known


class Conflict(Refused):
    """It exists already. `name`: of the existing repository, if it is one."""

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class WrongParent(Refused):
    """The branch is not at the expected commit."""


class Invalid(Refused):
    """An invalid path, name, file or metadata."""


class Dangerous(Invalid):
    """Content that could run code or harm readers."""


class TooLarge(Refused):
    """A limit of bytes or files, or a quota, is exceeded."""


class TooManyRequests(Refused):
    """The rate limit is exceeded for `seconds`."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Unsupported(Refused):
    """A part of the protocol that this hub lacks."""
