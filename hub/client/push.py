"""Publishing to a hub: one commit with the card's files, then the tag that makes it a version.

Every step finds out first whether it was done, so a publication that was interrupted is repeated as it was.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError
from kcard.hub.client.repository import Tagged, branches, holding, versions
from kcard.hub.client.talk import status, talk
from kcard.manifest import MANIFEST, Manifest

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["Published", "push"]

README = "README.md"
KEPT = {".gitattributes"}  # what a hub puts there itself
ATTEMPTS = 4
CONFLICT, MOVED_ON = 409, 412


@dataclass(frozen=True)
class Published:
    """A version on a hub. `sha256` is that of kcard.json; `size` in bytes, all files together."""

    hub: str
    repository: str
    number: int
    commit: str
    sha256: str
    size: int
    aliases: tuple[str, ...] = ()

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
    """Publish a card folder, whose files are as sealed; the same manifest again is the version that is there.

    page        the README.md of a card that has none
    repository  namespace/name (default: the user's own namespace, the card's name); made where it is not there
    private     whether a repository that is made is private; one that is there stays as it is
    aliases     branches that are moved to the version

    Raises HubError for what the hub refuses or where it does not answer, UnknownCard and UsageError for a wrong name.
    """
    manifest = Manifest.read(folder)
    text = (folder / MANIFEST).read_bytes()
    with talk(url, token, progress=progress) as api:
        user = str(api.whoami()["name"]) if token is not None else ""
        name = _made(api, repository or f"{user}/{manifest.name}", private)
        version = next(holding(api, name, {text}), None) or _new(api, name, folder, manifest, text, page)
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
    )


def _made(api: "HfApi", repository: str, private: bool) -> str:
    """The repository's name, once it is there."""
    found = api.create_repo(repository, private=private, exist_ok=True).repo_id
    if found != repository:
        raise HubError(f"{repository} is taken as {found}: names of repositories differ in more than case")
    return found


def _new(api: "HfApi", repository: str, folder: Path, manifest: Manifest, text: bytes, page: str) -> Tagged:
    commit = _committed(api, repository, folder, manifest, text, page)
    digest = hashlib.sha256(text).hexdigest()
    for _ in range(ATTEMPTS):
        number = max((version.number for version in versions(api, repository)), default=0) + 1
        version = Tagged(number, commit)
        try:
            api.create_tag(
                repository, tag=version.tag, revision=commit, tag_message=f"{manifest.name} {digest}"
            )
        except OSError as error:
            if status(error) != CONFLICT:  # somebody took the number just now: perhaps for this very card
                raise
            if (same := next(holding(api, repository, {text}), None)) is not None:
                return same
        else:
            return version
    raise HubError(f"{repository}: others publish there all the time: try again")


def _committed(
    api: "HfApi", repository: str, folder: Path, manifest: Manifest, text: bytes, page: str
) -> str:
    """The commit of main that holds this card and nothing else."""
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
    raise HubError(f"{repository}: others change it all the time: try again")


def _operations(
    api: "HfApi", repository: str, head: str, folder: Path, manifest: Manifest, text: bytes, page: str
) -> list[Any]:
    """Every file of the card is added, whatever else is there goes; the client leaves out what is unchanged."""
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
    """Let the branch `alias` be at the commit. The protocol can't move one: it is made anew."""
    at = branches(api, repository).get(alias)
    if at == commit:
        return
    if at is not None:
        api.delete_branch(repository, branch=alias)
    api.create_branch(repository, branch=alias, revision=commit, exist_ok=True)
