"""What a shared hub refuses, by reason. Only kcard.hub.server turns a reason into an HTTP status.

HubError
└── Refused
    ├── Unknown          who asks is not known: no token where one is needed, or one that is not valid
    ├── Forbidden        who asks is known and may not
    ├── Gated            a repository's files are given out on request only
    ├── NotThere         no such account, repository, revision or entry
    ├── Conflict         it is there already
    ├── WrongParent      the branch has moved on since the client looked
    ├── Invalid          what was sent can't be stored: a path, a name, a file, metadata
    │   └── Dangerous    it could run code, or break whoever reads it
    ├── TooLarge         more bytes, files or requests than allowed
    ├── TooMany          too many requests for now
    └── Unsupported      a part of the protocol that this hub does not have
"""

from typing import Literal

from kcard.errors import HubError

__all__ = [
    "Conflict",
    "Dangerous",
    "Forbidden",
    "Gated",
    "Invalid",
    "NotThere",
    "Refused",
    "TooLarge",
    "TooMany",
    "Unknown",
    "Unsupported",
    "WrongParent",
]


class Refused(HubError):
    """The message says in one line what was refused, why, and what to do instead. It holds no secret."""


class Unknown(Refused):
    """Who asks is not known."""


class Forbidden(Refused):
    """Who asks may not do that."""


class Gated(Refused):
    """The files of this repository are given out on request; `known` says whether who asks has a name."""

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.known = known


class NotThere(Refused):
    """There is no such thing, or who asks may not know of it.

    `commit` is the commit in which an entry was sought. `known` says whether who asks has a name.
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
    """It is there already. `name` is that of the repository, where it is one."""

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class WrongParent(Refused):
    """The branch is not at the commit that the client built on."""


class Invalid(Refused):
    """What was sent can't be stored."""


class Dangerous(Invalid):
    """What was sent could run code, or break whoever reads it."""


class TooLarge(Refused):
    """More than is allowed: bytes of a file or a request, files of a repository, a quota."""


class TooMany(Refused):
    """Too many requests; `seconds` until the next one is welcome."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class Unsupported(Refused):
    """A part of the protocol that this hub does not have."""
