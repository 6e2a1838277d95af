"""Downloads a card from a hub: the files that its manifest lists, verified by sha256."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import CardError, DamagedCard, HubError, UnknownCard
from kcard.hub.client.connection import connect, status
from kcard.hub.client.repository import RemoteReference, holding, newest
from kcard.hub.store.disk import discard
from kcard.hub.store.new_folder import create
from kcard.manifest import MANIFEST, Manifest, check_files

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["fetched", "install", "published_there"]

STALE_SECONDS = 7 * 24 * 3600


@contextmanager
def fetched(
    url: str, token: str | None, reference: RemoteReference, downloads: Path, *, progress: bool = False
) -> Iterator[Path]:
    """A folder with the verified files of a card, deleted at the end of the block.

    An interrupted download keeps its complete files under `downloads` for a week, and the next one resumes there.
    Raises UnknownCard for an unknown card, HubError if the hub refuses or does not answer, CardError or DamagedCard
    if the files do not match the manifest.
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
        except (CardError, UnknownCard, KeyboardInterrupt):  # nothing to resume
            discard(folder)
            raise
        try:
            yield folder
        finally:
            discard(folder)


def _download(
    url: str, token: str | None, repository: str, commit: str, folder: Path, progress: bool
) -> None:
    with connect(url, token, progress=progress) as api:
        manifest = _manifest(api, repository, commit, folder)
        for path in manifest.files:  # one by one: with threads, Ctrl-C would wait for all of them
            api.hf_hub_download(repository, path, revision=commit, local_dir=folder)
    check_files(folder, manifest)


def _commit(api: "HfApi", reference: RemoteReference) -> str:
    if reference.revision is None:
        return newest(api, reference.repository)
    return str(api.model_info(reference.repository, revision=reference.revision).sha)


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
    """Copy the manifest in `folder` and the files it lists to a new folder, verifying them.

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
