"""Published versions, and their references: card, card@v2, card@alias, card@sha256."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kcard.errors import DamagedCard, UsageError
from kcard.hub.repositories.figures import Declared, Verified
from kcard.manifest import MANIFEST, NAME, Manifest

__all__ = ["NUMBER", "Contents", "Problem", "Reference", "Version", "check_alias", "damaged"]

NUMBER = re.compile(r"v([1-9][0-9]{0,8})")
DIGEST = re.compile(r"[0-9a-f]{6,64}")
MAIN = "main"  # the branch with the newest version


@dataclass(frozen=True)
class Version:
    """One immutable version of a card.

    number      from 1, never reused while the card exists
    sha256      of kcard.json, which lists the sha256 of every other file
    size        bytes of all files
    published   in UTC
    declared    figures of the exam that came with the card; None without one
    verified    figures that this hub measured; None without any
    unexamined  whether it has weights, but no plausible exam
    """

    name: str
    number: int
    sha256: str
    manifest: Manifest
    size: int
    published: datetime
    aliases: tuple[str, ...] = ()
    declared: Declared | None = None
    verified: Verified | None = None
    unexamined: bool = False

    @property
    def reference(self) -> str:
        """The permanent reference of this version: card@v2."""
        return f"{self.name}@v{self.number}"

    @property
    def files(self) -> dict[str, str]:
        """sha256 of every file by path, including the manifest."""
        return {**self.manifest.files, MANIFEST: self.sha256}


@dataclass(frozen=True)
class Problem:
    """A missing or damaged file of a version; `what` says which."""

    card: str
    version: int
    path: str
    what: str


@dataclass(frozen=True)
class Contents:
    """The size of a hub. `files` are distinct files, `size` is in bytes.

    `database` and `blobs` are their locations: paths, or URLs without credentials.
    """

    path: Path
    database: str
    blobs: str
    cards: int
    versions: int
    pools: int
    files: int
    size: int


@dataclass(frozen=True)
class Reference:
    """A parsed reference. At most one of number, digest and alias is set; none means the newest version.

    `digest` is a prefix of a version's sha256.
    """

    name: str
    number: int | None = None
    digest: str | None = None
    alias: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Raises UsageError for an invalid reference."""
        name, at, rest = text.partition("@")
        if not name or (at and not rest):
            raise UsageError(
                f"invalid reference {text!r}: use CARD, CARD@v2, CARD@ALIAS or CARD@SHA256 (6 digits or more)"
            )
        if not at:
            return cls(name)
        if found := NUMBER.fullmatch(rest):
            return cls(name, number=int(found[1]))
        return cls(name, digest=rest) if DIGEST.fullmatch(rest) else cls(name, alias=rest)

    def names(self, version: Version) -> bool:
        """Whether the number, digest or alias matches the version."""
        if self.digest is not None:
            return version.sha256.startswith(self.digest)
        return version.number == self.number or self.alias in version.aliases


def check_alias(alias: str) -> None:
    """Raise UsageError for an invalid alias, or one that looks like a version number or a sha256."""
    if not NAME.fullmatch(alias):
        raise UsageError(
            f"invalid alias {alias!r}: use at most 96 lower-case letters, digits, '.', '_' and '-'"
        )
    if NUMBER.fullmatch(alias) or DIGEST.fullmatch(alias):
        raise UsageError(f"alias {alias!r} looks like a version number or a sha256: choose another")
    if alias == MAIN:
        raise UsageError(f"alias {alias!r} is reserved for the newest version: choose another")


def damaged(version: Version, path: str, fault: str) -> DamagedCard:
    """The error for a missing or damaged file of a version."""
    return DamagedCard(
        f"card {version.reference}: {path} is {fault} in the hub: `kcard verify {version.name}` lists all damage; "
        f"publish the card's folder again, or pull it again"
    )
