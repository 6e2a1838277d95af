"""Downloads a card from a hub that may be hostile: the files that its manifest lists, checked before they are used.

Their names are checked before the download, their size while they arrive, their sha256 and content after it.
"""

import hashlib
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import CardError, DamagedCard, HubError, UnknownCard
from kcard.hub.checks.card import check_contents, check_names
from kcard.hub.checks.file_kinds import kind_of
from kcard.hub.client.connection import connect, status
from kcard.hub.client.repository import RemoteReference, holding, newest
from kcard.hub.refusals import Refused
from kcard.hub.store.disk import discard
from kcard.hub.store.new_folder import create
from kcard.manifest import MANIFEST, Manifest, check_files
from kcard.sizes import shown_size

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["fetched", "install", "published_there"]

COMMIT = re.compile(r"[0-9a-f]{40,64}")
STALE_SECONDS = 7 * 24 * 3600
LARGEST_MANIFEST = 8 << 20  # bytes
MARGIN = 1 << 20  # bytes beside a file: the answers about it


@contextmanager
def fetched(
    url: str, token: str | None, reference: RemoteReference, downloads: Path, *, progress: bool = False
) -> "Iterator[Path]":
    """A folder with the verified files of a card, deleted at the end of the block.

    An interrupted download keeps its complete files under `downloads` for a week, and the next one resumes there.
    Raises UnknownCard for an unknown card, HubError if the hub refuses, does not answer or exceeds a limit, CardError
    for a file that may not be in a card, DamagedCard for one that does not match the manifest.
    """
    from huggingface_hub import utils

    downloads.mkdir(parents=True, exist_ok=True)
    _forget(downloads)
    with connect(url, token) as api:
        commit = _commit(api, reference)
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
    with connect(url, token, largest=LARGEST_MANIFEST) as api:
        manifest = _manifest(api, repository, commit, folder)
    check_names(manifest)
    with connect(url, token) as api:
        sizes = _sizes(api, repository, commit, manifest)
    _check_room(folder, repository, sum(sizes.values()))
    for path, size in sizes.items():  # one by one: with threads, Ctrl-C would wait for all of them
        with connect(url, token, progress=progress, largest=size + MARGIN) as api:
            api.hf_hub_download(repository, path, revision=commit, local_dir=folder)
    check_files(folder, manifest)
    check_contents(manifest, lambda path: (folder / path).open("rb"))


def _sizes(api: "HfApi", repository: str, commit: str, manifest: Manifest) -> dict[str, int]:
    """The bytes of each file of the manifest, as the hub lists them. Raises CardError for a missing file."""
    entries = api.list_repo_tree(repository, recursive=True, revision=commit)
    listed = {entry.path: getattr(entry, "size", None) for entry in entries}
    found: dict[str, int] = {}
    for path in manifest.files:
        size = listed.get(path)
        if type(size) is not int or size < 0:
            raise CardError(f"{repository} at {commit[:12]}: {path}, listed in {MANIFEST}, is missing")
        kind_of(path, size)
        found[path] = size
    return found


def _check_room(folder: Path, repository: str, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise HubError(
            f"{repository} has {shown_size(needed)}, but only {shown_size(free)} are free in {folder.parent}: free "
            "some space, or set KCARD_HOME to another disk"
        )


def _commit(api: "HfApi", reference: RemoteReference) -> str:
    if reference.revision is None:
        found = newest(api, reference.repository)
    else:
        found = str(api.model_info(reference.repository, revision=reference.revision).sha)
    if not COMMIT.fullmatch(found):
        raise HubError(f"{reference.repository}: the hub names {found[:80]!r}, which is no commit")
    return found


def _manifest(api: "HfApi", repository: str, commit: str, folder: Path) -> Manifest:
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        path = Path(api.hf_hub_download(repository, MANIFEST, revision=commit, local_dir=folder))
    except LocalEntryNotFoundError:  # no response
        raise
    except EntryNotFoundError:
        raise UnknownCard(f"{repository} at {commit[:12]} is not a card: {MANIFEST} is missing") from None
    try:
        return Manifest.from_json(path.read_bytes().decode(), f"{repository}: {MANIFEST}")
    except UnicodeDecodeError:
        raise HubError(f"{repository}: {MANIFEST} is not UTF-8 text") from None


def install(folder: Path, destination: Path) -> Path:
    """Copy the manifest in `folder` and the files it lists, which were checked, to a new folder, verifying them.

    Raises UsageError if the destination exists, DamagedCard if a file does not match the manifest.
    """
    text = (folder / MANIFEST).read_bytes()
    files = {**Manifest.from_json(text.decode()).files, MANIFEST: hashlib.sha256(text).hexdigest()}
    return create(
        destination,
        files,
        lambda path: (folder / path).open("rb"),
        lambda path, fault: DamagedCard(f"{path} changed while it was copied: {fault}"),
    )


def published_there(url: str, token: str | None, repository: str, manifests: set[bytes]) -> bool:
    """Whether the repository has a version with one of these kcard.json."""
    with connect(url, token) as api:
        try:
            return next(holding(api, repository, manifests), None) is not None
        except OSError as error:
            if status(error) == 404:
                return False
            raise


def _forget(downloads: Path) -> None:
    old = time.time() - STALE_SECONDS
    for entry in downloads.iterdir():
        if entry.is_dir() and entry.stat().st_mtime < old:
            discard(entry)
        elif entry.suffix == ".lock" and entry.stat().st_mtime < old:
            entry.unlink(missing_ok=True)
