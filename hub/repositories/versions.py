"""Published versions as values, and the references that name them: card, card@v2, card@alias, card@sha256."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kcard.errors import DamagedCard, UsageError
from kcard.manifest import MANIFEST, NAME, Manifest

__all__ = ["Contents", "Problem", "Reference", "Version", "check_alias", "damaged"]

NUMBER = re.compile(r"v([1-9][0-9]{0,8})")
DIGEST = re.compile(r"[0-9a-f]{6,64}")
MAIN = "main"  # the branch of a card's repository that is at its newest version


@dataclass(frozen=True)
class Version:
    """One immutable version of a card.

    `number` counts from 1 and is never given twice while the card exists; `sha256` is that of the bytes of
    kcard.json, which names the sha256 of every other file; `size` is in bytes, all files together;
    `published` is in UTC; `factuality`, in [0, 1], is that of the exam that came with the card, None where it has none.
    """

    name: str
    number: int
    sha256: str
    manifest: Manifest
    size: int
    published: datetime
    aliases: tuple[str, ...] = ()
    factuality: float | None = None

    @property
    def reference(self) -> str:
        """What names this version for as long as it exists: card@v2."""
        return f"{self.name}@v{self.number}"

    @property
    def files(self) -> dict[str, str]:
        """sha256 of every file by its path, the manifest included."""
        return {**self.manifest.files, MANIFEST: self.sha256}


@dataclass(frozen=True)
class Problem:
    """A file of a version that is not as it was published; `what` says missing or damaged."""

    card: str
    version: int
    path: str
    what: str


@dataclass(frozen=True)
class Contents:
    """How much a hub holds. `files`: stored once each, however many versions have them; `size` in bytes.

    `database` and `blobs` say where these are: a path, or a URL without what it takes to get in.
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
    """A parsed reference. Of number, digest and alias at most one is set; none means the newest version.

    `digest` is the beginning of a version's sha256.
    """

    name: str
    number: int | None = None
    digest: str | None = None
    alias: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Raises UsageError for text that can't name a version."""
        name, at, rest = text.partition("@")
        if not name or (at and not rest):
            raise UsageError(
                f"reference {text!r}: use CARD, CARD@v2, CARD@ALIAS or CARD@SHA256 (6 digits or more)"
            )
        if not at:
            return cls(name)
        if found := NUMBER.fullmatch(rest):
            return cls(name, number=int(found[1]))
        return cls(name, digest=rest) if DIGEST.fullmatch(rest) else cls(name, alias=rest)

    def names(self, version: Version) -> bool:
        """Whether this number, digest or alias is that version's."""
        if self.digest is not None:
            return version.sha256.startswith(self.digest)
        return version.number == self.number or self.alias in version.aliases


def check_alias(alias: str) -> None:
    """Raise UsageError for an alias that is no name, or that would read as a version number or a sha256."""
    if not NAME.fullmatch(alias):
        raise UsageError(f"alias {alias!r}: use lower-case letters, digits, '.', '_' and '-', at most 96")
    if NUMBER.fullmatch(alias) or DIGEST.fullmatch(alias):
        raise UsageError(f"alias {alias!r} reads as a version number or a sha256: choose another word")
    if alias == MAIN:
        raise UsageError(f"alias {alias!r} always means the newest version: choose another word")


def damaged(version: Version, path: str, fault: str) -> DamagedCard:
    """The error for a file of a version that is missing or damaged in the hub."""
    return DamagedCard(
        f"card {version.reference}: {path} is {fault} in the hub: `kcard verify {version.name}` lists "
        f"all damage; publish the card's folder again or pull it again"
    )
