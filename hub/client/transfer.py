"""Push cards to a hub, pull and list them.

Steps that are already done are skipped, so that an interrupted publication can be repeated.
"""

import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import CardError, DamagedCard, HubError, UnknownCard, UsageError
from kcard.hub.checks.content import check_contents, check_names
from kcard.hub.checks.formats import kind_of
from kcard.hub.client.connection import connect, http_status
from kcard.hub.errors import Refused
from kcard.hub.storage import create_folder, discard
from kcard.io import shown_size
from kcard.manifest import MANIFEST, Manifest, check_files

if TYPE_CHECKING:
    from huggingface_hub import HfApi


# Lists of the cards of a hub.

CARD = "knowledge-card"  # a tag in the README.md of every card
MAX_LISTED_TAGS = 100
MAX_LISTED_CHARACTERS = 200  # characters of a name or tag


@dataclass(frozen=True)
class ListedCard:
    """A repository in a hub's listing; `modified` is in UTC."""

    repository: str
    private: bool
    downloads: int
    likes: int
    modified: datetime | None
    tags: tuple[str, ...]


def list_cards(url: str, token: str | None, text: str | None = None, *, limit: int = 100) -> list[ListedCard]:
    """Return the cards of a hub that the token may read, last changed first; `text` searches names and tags."""
    with connect(url, token) as api:
        return [
            ListedCard(
                repository=_shorten(model.id),
                private=bool(model.private),
                downloads=int(model.downloads or 0),
                likes=int(model.likes or 0),
                modified=model.last_modified,
                tags=tuple(_shorten(tag) for tag in (model.tags or ())[:MAX_LISTED_TAGS]),
            )
            for model in api.list_models(
                filter=CARD, search=text, sort="last_modified", limit=limit, full=True
            )
        ]


def _shorten(text: object) -> str:
    return str(text)[:MAX_LISTED_CHARACTERS]


# A card's repository on a hub: tags v1, v2, … for versions, branches for aliases.

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
NUMBERED_TAG = re.compile(r"v([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class RemoteReference:
    """namespace/name or namespace/name@revision, where a revision is a tag, a branch or a commit."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> "RemoteReference":
        """Parse a reference. Raises UsageError if it is invalid."""
        repository, at, revision = text.partition("@")
        if not NAME.fullmatch(repository) or (at and not revision):
            raise UsageError(
                f"invalid reference {text!r}: use namespace/name or namespace/name@REVISION (a tag, branch or commit)"
            )
        return cls(repository, revision or None)


@dataclass(frozen=True)
class RemoteVersion:
    """A version of a card on a hub: its number, from 1, and the commit of its tag."""

    number: int
    commit: str

    @property
    def tag(self) -> str:
        return f"v{self.number}"


def list_versions(api: "HfApi", repository: str) -> list[RemoteVersion]:
    """Return the versions of a repository, newest first."""
    versions = []
    for tag in api.list_repo_refs(repository).tags:
        match = NUMBERED_TAG.fullmatch(tag.name)
        if match is not None:
            versions.append(RemoteVersion(int(match[1]), tag.target_commit))
    return sorted(versions, key=lambda version: -version.number)


def find_published(api: "HfApi", repository: str, manifests: set[bytes]) -> Iterator[RemoteVersion]:
    """Yield the versions whose kcard.json is one of these, newest first."""
    for version in list_versions(api, repository):
        if any(has_manifest(api, repository, version.commit, manifest) for manifest in manifests):
            yield version


def has_manifest(api: "HfApi", repository: str, commit: str, manifest: bytes) -> bool:
    """Return whether the kcard.json of a commit has these bytes, by the digest that the hub reports."""
    entries = api.get_paths_info(repository, [MANIFEST], revision=commit)
    if not entries:
        return False
    lfs = getattr(entries[0], "lfs", None)
    if lfs is not None:
        return bool(lfs.sha256 == hashlib.sha256(manifest).hexdigest())
    blob = hashlib.sha1(b"blob %d\0" % len(manifest) + manifest, usedforsecurity=False).hexdigest()
    return bool(getattr(entries[0], "blob_id", None) == blob)


README = "README.md"
CREATED_BY_HUB = {".gitattributes"}  # created by the hub
MAX_ATTEMPTS = 4
CONFLICT, MOVED_ON = 409, 412


@dataclass(frozen=True)
class PublishedVersion:
    """A version on a hub.

    sha256     of kcard.json
    size       bytes of all files
    private    whether others don't see the repository
    unchanged  whether the hub had the version before
    """

    hub: str
    repository: str
    number: int
    commit: str
    sha256: str
    size: int
    private: bool
    aliases: tuple[str, ...] = ()
    unchanged: bool = field(default=False, compare=False)

    @property
    def reference(self) -> str:
        return f"{self.repository}@v{self.number}"

    @property
    def url(self) -> str:
        return f"{self.hub}/{self.repository}"


def push_card(
    url: str,
    token: str | None,
    folder: Path,
    page: str,
    *,
    repository: str | None = None,
    private: bool | None = None,
    aliases: Sequence[str] = (),
    check_newest: Callable[[str, Manifest], None] | None = None,
    progress: bool = False,
) -> PublishedVersion:
    """Publish a verified card folder; the same manifest again returns the existing version.

    page        the README.md for a card without one
    repository  namespace/name (default: the user's namespace, the card's name); created if missing
    private     whether a new repository is private; None: as the hub's operator decided
    aliases     branches to move to the version
    check_newest  called with the reference and the manifest of the version before a new one; may raise

    Raises HubError if the hub refuses or does not answer, UnknownCard and UsageError for an invalid name.
    """
    manifest = Manifest.read(folder)
    text = (folder / MANIFEST).read_bytes()
    with connect(url, token, progress=progress) as api:
        # The repository, created if needed.
        user = str(api.whoami()["name"]) if token is not None else ""
        requested = repository or f"{user}/{manifest.name}"
        name = api.create_repo(requested, private=private, exist_ok=True).repo_id
        if name != requested:
            raise HubError(
                f"{requested} already exists as {name}: repository names must differ in more than case"
            )
        # The version, unless the hub has it.
        version = next(find_published(api, name, {text}), None)
        unchanged = version is not None
        if version is None:
            versions = list_versions(api, name)
            if versions and check_newest is not None:
                before = _read_manifest(url, token, name, versions[0].commit)
                if before is not None:
                    check_newest(f"{name}@{versions[0].tag}", before)
            version = _publish_version(api, name, folder, manifest, text, page)
        # Its aliases: branches, which are moved by deleting and recreating them.
        for alias in aliases:
            branches = {branch.name: branch.target_commit for branch in api.list_repo_refs(name).branches}
            head = branches.get(alias)
            if head == version.commit:
                continue
            if head is not None:
                api.delete_branch(name, branch=alias)
            api.create_branch(name, branch=alias, revision=version.commit, exist_ok=True)
        is_private = bool(api.model_info(name).private)
    paths = [folder / path for path in (*manifest.files, MANIFEST)]
    return PublishedVersion(
        hub=url,
        repository=name,
        number=version.number,
        commit=version.commit,
        sha256=hashlib.sha256(text).hexdigest(),
        size=sum(path.stat().st_size for path in paths),
        private=is_private,
        aliases=tuple(aliases),
        unchanged=unchanged,
    )


def _read_manifest(url: str, token: str | None, repository: str, commit: str) -> Manifest | None:
    """Return the manifest of a version on a hub; None if it is no card that this kcard can read."""
    from huggingface_hub.errors import EntryNotFoundError

    with tempfile.TemporaryDirectory() as folder, connect(url, token, largest=MAX_MANIFEST_BYTES) as api:
        try:
            path = Path(api.hf_hub_download(repository, MANIFEST, revision=commit, local_dir=folder))
            return Manifest.from_json(path.read_text(encoding="utf-8"), f"{repository}: {MANIFEST}")
        except (EntryNotFoundError, CardError, UnicodeDecodeError):
            return None


def _publish_version(
    api: "HfApi", repository: str, folder: Path, manifest: Manifest, text: bytes, page: str
) -> RemoteVersion:
    """Commit the card, and tag the commit with the next number."""
    commit = _commit_card(api, repository, folder, manifest, text, page)
    digest = hashlib.sha256(text).hexdigest()
    for _ in range(MAX_ATTEMPTS):
        number = max((version.number for version in list_versions(api, repository)), default=0) + 1
        version = RemoteVersion(number, commit)
        message = f"{manifest.name} {digest}"
        try:
            api.create_tag(repository, tag=version.tag, revision=commit, tag_message=message)
        except OSError as error:
            if http_status(error) != CONFLICT:
                raise
            # Another client has taken the number, perhaps for the same card.
            same = next(find_published(api, repository, {text}), None)
            if same is not None:
                return same
        else:
            return version
    raise HubError(f"{repository}: too many concurrent publications: try again")


def _commit_card(
    api: "HfApi", repository: str, folder: Path, manifest: Manifest, text: bytes, page: str
) -> str:
    """Commit the card to main, without any other files."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete
    from huggingface_hub.hf_api import RepoFile

    for _ in range(MAX_ATTEMPTS):
        head = str(api.model_info(repository).sha)
        try:
            # Add every file of the card and delete all others; the client skips unchanged files.
            added: dict[str, Path | bytes] = {path: folder / path for path in manifest.files}
            added[MANIFEST] = text
            added.setdefault(README, page.encode())
            there = api.list_repo_tree(repository, recursive=True, revision=head)
            gone = [entry.path for entry in there if isinstance(entry, RepoFile)]
            operations: list[Any] = [
                *(CommitOperationDelete(path) for path in gone if path not in {*added, *CREATED_BY_HUB}),
                *(CommitOperationAdd(path, content) for path, content in added.items()),
            ]
            return str(
                api.create_commit(
                    repository,
                    operations,
                    commit_message=f"{manifest.name} {hashlib.sha256(text).hexdigest()[:12]}",
                    commit_description=manifest.description,
                    parent_commit=head,
                ).oid
            )
        except OSError as error:
            if http_status(error) != MOVED_ON:
                raise
    raise HubError(f"{repository}: too many concurrent changes: try again")


# Downloads of a card from a hub that may be hostile: the files that its manifest lists, checked before they are used.
#
# Their names are checked before the download, their sizes during it, their sha256 and content after it.

COMMIT = re.compile(r"[0-9a-f]{40,64}")
STALE_SECONDS = 7 * 24 * 3600
MAX_MANIFEST_BYTES = 8 << 20  # bytes
MARGIN_BYTES = 1 << 20  # bytes of the other answers while a file is downloaded


@contextmanager
def download_card(
    url: str, token: str | None, reference: RemoteReference, downloads: Path, *, progress: bool = False
) -> "Iterator[Path]":
    """Yield a folder with the verified files of a card, deleted at the end of the block.

    An interrupted download keeps its complete files under `downloads` for a week, and the next one resumes there.
    Raises UnknownCard for an unknown card, HubError if the hub refuses, does not answer or exceeds a limit, CardError
    for a file that may not be in a card, DamagedCard for one that does not match the manifest.
    """
    from huggingface_hub import utils

    downloads.mkdir(parents=True, exist_ok=True)
    # Delete interrupted downloads that nobody resumed.
    old = time.time() - STALE_SECONDS
    for entry in downloads.iterdir():
        if entry.is_dir() and entry.stat().st_mtime < old:
            discard(entry)
        elif entry.suffix == ".lock" and entry.stat().st_mtime < old:
            entry.unlink(missing_ok=True)
    with connect(url, token) as api:
        name = reference.repository
        versions = list_versions(api, name) if reference.revision is None else []
        if versions:
            commit = versions[0].commit
        else:  # of the revision, or of main if no version was published
            info = api.model_info(name, revision=reference.revision)
            commit = str(info.sha)
        if not COMMIT.fullmatch(commit):
            raise HubError(f"{name}: the hub names {commit[:80]!r}, which is no commit")
    key = hashlib.sha256(f"{url} {reference.repository} {commit}".encode()).hexdigest()[:32]
    folder = downloads / key
    locks: Any = utils  # the lock is not exported for type checkers
    with locks.WeakFileLock(downloads / f"{key}.lock"):  # another process may download the same card
        try:
            _download(url, token, reference.repository, commit, folder, progress)
        except (CardError, UnknownCard, Refused, KeyboardInterrupt):  # nothing to resume
            discard(folder)
            raise
        try:
            yield folder
        finally:
            discard(folder)


def _download(
    url: str, token: str | None, repository: str, commit: str, folder: Path, progress: bool
) -> None:
    """Download the missing files of a card to a folder, and check all. Raises as `download_card`."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    # The manifest.
    with connect(url, token, largest=MAX_MANIFEST_BYTES) as api:
        try:
            manifest_path = Path(api.hf_hub_download(repository, MANIFEST, revision=commit, local_dir=folder))
        except LocalEntryNotFoundError:  # no response
            raise
        except EntryNotFoundError:
            raise UnknownCard(f"{repository} at {commit[:12]} is not a card: {MANIFEST} is missing") from None
        try:
            manifest = Manifest.from_json(manifest_path.read_bytes().decode(), f"{repository}: {MANIFEST}")
        except UnicodeDecodeError:
            raise HubError(f"{repository}: {MANIFEST} is not UTF-8 text") from None
    # The names of its files, and their sizes on the hub and on this disk.
    check_names(manifest)
    with connect(url, token) as api:
        entries = api.list_repo_tree(repository, recursive=True, revision=commit)
        listed = {entry.path: getattr(entry, "size", None) for entry in entries}
        sizes: dict[str, int] = {}
        for path in manifest.files:
            size = listed.get(path)
            if type(size) is not int or size < 0:
                raise CardError(f"{repository} at {commit[:12]}: {path}, listed in {MANIFEST}, is missing")
            kind_of(path, size)
            sizes[path] = size
    needed, free = sum(sizes.values()), shutil.disk_usage(folder).free
    if needed > free:
        raise HubError(
            f"{repository} has {shown_size(needed)}, but only {shown_size(free)} are free in {folder.parent}: free "
            "some space, or set KCARD_HOME to another disk"
        )
    # The files, one by one: with threads, Ctrl-C would wait for all of them.
    for path, size in sizes.items():
        with connect(url, token, progress=progress, largest=size + MARGIN_BYTES) as api:
            api.hf_hub_download(repository, path, revision=commit, local_dir=folder)
    check_files(folder, manifest)
    check_contents(manifest, lambda path: (folder / path).open("rb"))


def install_card(folder: Path, destination: Path) -> Path:
    """Copy the manifest in `folder` and the files that it lists, which are verified again, to a new folder.

    Raises UsageError if the destination exists, DamagedCard if a file does not match the manifest.
    """
    text = (folder / MANIFEST).read_bytes()
    files = {**Manifest.from_json(text.decode()).files, MANIFEST: hashlib.sha256(text).hexdigest()}
    return create_folder(
        destination,
        files,
        lambda path: (folder / path).open("rb"),
        lambda path, fault: DamagedCard(f"{path} changed while it was copied: {fault}"),
    )


def has_published_version(url: str, token: str | None, repository: str, manifests: set[bytes]) -> bool:
    """Return whether a repository has a version with one of these manifests (the bytes of kcard.json)."""
    with connect(url, token) as api:
        try:
            return next(find_published(api, repository, manifests), None) is not None
        except OSError as error:
            if http_status(error) == 404:
                return False
            raise
