"""A card's repository on a hub: tags v1, v2, … for versions, branches for aliases."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.errors import UsageError
from kcard.manifest import MANIFEST

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["RemoteReference", "Tagged", "branches", "holding", "newest", "versions"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
NUMBERED = re.compile(r"v([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class RemoteReference:
    """namespace/name or namespace/name@revision, where a revision is a tag, a branch or a commit."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> "RemoteReference":
        """Raises UsageError for an invalid reference."""
        repository, at, revision = text.partition("@")
        if not NAME.fullmatch(repository) or (at and not revision):
            raise UsageError(
                f"invalid reference {text!r}: use namespace/name or namespace/name@REVISION (a tag, branch or commit)"
            )
        return cls(repository, revision or None)


@dataclass(frozen=True)
class Tagged:
    """A version of a card on a hub: its number, from 1, and the commit of its tag."""

    number: int
    commit: str

    @property
    def tag(self) -> str:
        return f"v{self.number}"


def versions(api: "HfApi", repository: str) -> list[Tagged]:
    """The versions of a repository, newest first."""
    found = api.list_repo_refs(repository).tags
    numbered = ((NUMBERED.fullmatch(tag.name), tag.target_commit) for tag in found)
    tagged = (Tagged(int(match[1]), commit) for match, commit in numbered if match is not None)
    return sorted(tagged, key=lambda version: -version.number)


def newest(api: "HfApi", repository: str) -> str:
    """The commit of the newest version, or of main if none was published."""
    found = versions(api, repository)
    return found[0].commit if found else str(api.model_info(repository).sha)


def branches(api: "HfApi", repository: str) -> dict[str, str]:
    """The commit of each branch, by name."""
    return {branch.name: branch.target_commit for branch in api.list_repo_refs(repository).branches}


def holding(api: "HfApi", repository: str, manifests: set[bytes]) -> Iterator[Tagged]:
    """The versions whose kcard.json is one of these, newest first."""
    for version in versions(api, repository):
        if any(holds(api, repository, version.commit, manifest) for manifest in manifests):
            yield version


def holds(api: "HfApi", repository: str, commit: str, manifest: bytes) -> bool:
    """Whether the kcard.json of a commit has these bytes, by the digest that the hub reports."""
    found = api.get_paths_info(repository, [MANIFEST], revision=commit)
    if not found:
        return False
    lfs = getattr(found[0], "lfs", None)
    if lfs is not None:
        return bool(lfs.sha256 == hashlib.sha256(manifest).hexdigest())
    blob = hashlib.sha1(b"blob %d\0" % len(manifest) + manifest, usedforsecurity=False).hexdigest()
    return bool(getattr(found[0], "blob_id", None) == blob)
