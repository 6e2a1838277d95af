"""Repositories, commits and files as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from kcard.hub.repositories.figures import Declared, Reason, Verified

__all__ = [
    "BRANCH",
    "MAIN",
    "TAG",
    "Add",
    "Commit",
    "Copy",
    "Delete",
    "DeleteFolder",
    "Entry",
    "Mark",
    "Operation",
    "Publication",
    "Ref",
    "Repository",
    "Type",
]

Type: TypeAlias = Literal["model", "dataset"]
BRANCH, TAG = "branch", "tag"
MAIN = "main"


@dataclass(frozen=True)
class Entry:
    """A file of a commit.

    oid     git's: the sha1 of its blob, or of its LFS pointer for a large file
    sha256  of its bytes: the name of its blob in the store
    size    bytes
    """

    path: str
    oid: str
    sha256: str
    size: int
    lfs: bool


@dataclass(frozen=True)
class Commit:
    """A commit; `sha` has 40 hexadecimal digits, `date` is in UTC."""

    sha: str
    parent: str | None
    title: str
    message: str
    author: str
    date: datetime


@dataclass(frozen=True)
class Ref:
    """A branch or a tag with its commit."""

    name: str
    sha: str
    message: str = ""


@dataclass(frozen=True)
class Repository:
    """A repository as of its branch main.

    name    namespace/name
    card    the metadata of its README.md
    tags    including derived ones
    size    bytes of the files of main
    """

    id: int
    type: Type
    name: str
    private: bool
    gated: Literal["no", "auto", "manual"]
    created: datetime
    modified: datetime
    downloads: int = 0
    likes: int = 0
    head: str | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    pipeline_tag: str | None = None
    library: str | None = None
    size: int = 0

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]


@dataclass(frozen=True)
class Add:
    """Add or replace a file."""

    entry: Entry


@dataclass(frozen=True)
class Delete:
    """Delete a file."""

    path: str


@dataclass(frozen=True)
class DeleteFolder:
    """Delete every file under a path."""

    path: str


@dataclass(frozen=True)
class Copy:
    """Copy a file from a commit of the same repository."""

    source: str
    commit: str
    path: str


Operation: TypeAlias = Add | Delete | DeleteFolder | Copy


@dataclass(frozen=True)
class Publication:
    """A tag that published a version; `version` is the sha256 of its manifest."""

    tag: str
    commit: str
    version: str
    number: int
    author: str
    at: datetime


@dataclass(frozen=True)
class Mark:
    """A summary of the newest version of a repository.

    declared    figures of the exam that came with the card; None without one
    verified    figures that this hub measured; None without any
    unexamined  whether it has weights, but no plausible exam
    quarantine  why it is quarantined, if it is
    """

    reference: str
    version: str
    description: str = ""
    declared: Declared | None = None
    verified: Verified | None = None
    unexamined: bool = False
    quarantine: Reason | None = None

    @property
    def audited(self) -> bool:
        """Whether this hub measured its factuality against independent evidence."""
        return (
            self.verified is not None and self.verified.factuality is not None and self.verified.independent
        )

    @property
    def factuality(self) -> float | None:
        """The verified factuality; without one, the self-declared."""
        if self.verified is not None and self.audited:
            return self.verified.factuality
        return None if self.declared is None else self.declared.factuality

    @property
    def quarantined(self) -> bool:
        """Whether it is used only if named."""
        return self.quarantine is not None
