"""Options of the mirror."""

from dataclasses import dataclass

__all__ = ["FULL", "MirrorOptions"]

FULL = "this hub mirrors as many bytes as it may ({limit}): ask its administrator"


@dataclass(frozen=True)
class MirrorOptions:
    """Which hub this one mirrors.

    url        of the hub, without a trailing slash
    age        seconds after which it is asked again for branches, and whether a client may read a repository
    limit      most bytes of all mirrored files
    anonymous  whether visitors without an account make this hub fetch what is not here yet
    """

    url: str
    age: int = 600
    limit: int = 100_000_000_000
    anonymous: bool = False
