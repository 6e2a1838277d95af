"""Publishes to a hub: one commit with the card's files, then a tag that makes it a version.

Each step is skipped if it is already done, so an interrupted publication can be repeated.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError
from kcard.hub.client.connection import connect, status
from kcard.hub.client.repository import Tagged, branches, holding, versions
from kcard.manifest import MANIFEST, Manifest

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["Published", "push"]

README = "README.md"
KEPT = {".gitattributes"}  # created by the hub
ATTEMPTS = 4
CONFLICT, MOVED_ON = 409, 412


@dataclass(frozen=True)
class Published:
    """A version on a hub.

    sha256     of kcard.json
    size       bytes of all files
    unchanged  whether the hub had the version before
    """

    hub: str
    repository: str
    number: int
    commit: str
    sha256: str
    size: int
    aliases: tuple[str, ...] = ()
    unchanged: bool = field(default=False, compare=False)

    @property
    def reference(self) -> str:
        return f"{self.repository}@v{self.number}"

    @property
    def url(self) -> str:
        return f"{self.hub}/{self.repository}"


def push(
    url: str,
    token: str | None,
    folder: Path,
    page: str,
    *,
    repository: str | None = None,
    private: bool = False,
    aliases: Sequence[str] = (),
    progress: bool = False,
) -> Published:
    """Publish a verified card folder; the same manifest again returns the existing version.

    page        the README.md for a card without one
    repository  namespace/name (default: the user's namespace, the card's name); created if missing
    private     whether a new repository is private
    aliases     branches to move to the version

    Raises HubError if the hub refuses or does not answer, UnknownCard and UsageError for an invalid name.
    """
    manifest = Manifest.read(folder)
    text = (folder / MANIFEST).read_bytes()
    with connect(url, token, progress=progress) as api:
        user = str(api.whoami()["name"]) if token is not None else ""
        name = _made(api, repository or f"{user}/{manifest.name}", private)
        version = next(holding(api, name, {text}), None)
        unchanged = version is not None
        if version is None:
            version = _new(api, name, folder, manifest, text, page)
        for alias in aliases:
            _point(api, name, alias, version.commit)
    paths = [folder / path for path in (*manifest.files, MANIFEST)]
    return Published(
        hub=url,
        repository=name,
        number=version.number,
        commit=version.commit,
        sha256=hashlib.sha256(text).hexdigest(),
        size=sum(path.stat().st_size for path in paths),
        aliases=tuple(aliases),
        unchanged=unchanged,
    )


def _made(api: "HfApi", repository: str, private: bool) -> str:
    """Create the repository unless it exists; returns its name."""
    found = api.create_repo(repository, private=private, exist_ok=True).repo_id
    if found != repository:
        raise HubError(
            f"{repository} already exists as {found}: repository names must differ in more than case"
        )
    return found


def _new(api: "HfApi", repository: str, folder: Path, manifest: Manifest, text: bytes, page: str) -> Tagged:
    commit = _committed(api, repository, folder, manifest, text, page)
    digest = hashlib.sha256(text).hexdigest()
    for _ in range(ATTEMPTS):
        number = max((version.number for version in versions(api, repository)), default=0) + 1
        version = Tagged(number, commit)
        message = f"{manifest.name} {digest}"
        try:
            api.create_tag(repository, tag=version.tag, revision=commit, tag_message=message)
        except OSError as error:
            if (
                status(error) != CONFLICT
            ):  # a conflict: another client used the number, perhaps for the same card
                raise
            if (same := next(holding(api, repository, {text}), None)) is not None:
                return same
        else:
            return version
    raise HubError(f"{repository}: too many concurrent publications: try again")


def _committed(
    api: "HfApi", repository: str, folder: Path, manifest: Manifest, text: bytes, page: str
) -> str:
    """Commit the card to main, without any other files."""
    for _ in range(ATTEMPTS):
        head = str(api.model_info(repository).sha)
        try:
            return str(
                api.create_commit(
                    repository,
                    _operations(api, repository, head, folder, manifest, text, page),
                    commit_message=f"{manifest.name} {hashlib.sha256(text).hexdigest()[:12]}",
                    commit_description=manifest.description,
                    parent_commit=head,
                ).oid
            )
        except OSError as error:
            if status(error) != MOVED_ON:
                raise
    raise HubError(f"{repository}: too many concurrent changes: try again")


def _operations(
    api: "HfApi", repository: str, head: str, folder: Path, manifest: Manifest, text: bytes, page: str
) -> list[Any]:
    """Add every file of the card and delete all others; the client skips unchanged files."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete
    from huggingface_hub.hf_api import RepoFile

    added: dict[str, Path | bytes] = {path: folder / path for path in manifest.files} | {MANIFEST: text}
    added.setdefault(README, page.encode())
    there = api.list_repo_tree(repository, recursive=True, revision=head)
    gone = [entry.path for entry in there if isinstance(entry, RepoFile)]
    return [
        *(CommitOperationDelete(path) for path in gone if path not in {*added, *KEPT}),
        *(CommitOperationAdd(path, content) for path, content in added.items()),
    ]


def _point(api: "HfApi", repository: str, alias: str, commit: str) -> None:
    """Move the branch `alias` to the commit, by deleting and recreating it."""
    at = branches(api, repository).get(alias)
    if at == commit:
        return
    if at is not None:
        api.delete_branch(repository, branch=alias)
    api.create_branch(repository, branch=alias, revision=commit, exist_ok=True)
