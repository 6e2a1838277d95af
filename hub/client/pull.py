"""Fetching a card from a hub: every file that its manifest names, and nothing else, each with its sha256."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import CardError, HubError, UnknownCard
from kcard.hub.client.repository import RemoteReference, holding, newest
from kcard.hub.client.talk import status, talk
from kcard.hub.store.disk import discard
from kcard.manifest import MANIFEST, Manifest, check_files

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["fetched", "published_there"]

STALE_SECONDS = 7 * 24 * 3600


@contextmanager
def fetched(
    url: str, token: str | None, reference: RemoteReference, downloads: Path, *, progress: bool = False
) -> Iterator[Path]:
    """A folder with the card's files, verified; it is gone when the block ends.

    Files that were whole when a download broke off stay under `downloads`, and the next one goes on with the
    others; what nobody went on with for a week goes. Raises UnknownCard where there is no such card, HubError where
    the hub does not answer or refuses, CardError or DamagedCard where what it sends is not what its manifest says.
    """
    from huggingface_hub import utils

    downloads.mkdir(parents=True, exist_ok=True)
    _forget(downloads)
    with talk(url, token) as api:
        commit = _commit(api, reference)
    key = hashlib.sha256(f"{url} {reference.repository} {commit}".encode()).hexdigest()[:32]
    folder = downloads / key
    locks: Any = utils  # its lock is not exported in a way that a type checker sees
    with locks.WeakFileLock(downloads / f"{key}.lock"):  # two processes may want the same card
        try:
            _download(url, token, reference.repository, commit, folder, progress)
        except (CardError, UnknownCard, KeyboardInterrupt):  # the next one has nothing to go on with
            discard(folder)
            raise
        try:
            yield folder
        finally:
            discard(folder)


def _download(
    url: str, token: str | None, repository: str, commit: str, folder: Path, progress: bool
) -> None:
    with talk(url, token, progress=progress) as api:
        manifest = _manifest(api, repository, commit, folder)
        for path in manifest.files:  # one by one: Ctrl-C would wait for every file that a thread is fetching
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
    except LocalEntryNotFoundError:  # no answer
        raise
    except EntryNotFoundError:
        raise UnknownCard(f"{repository} at {commit[:12]} is no card: it has no {MANIFEST}") from None
    try:
        return Manifest.from_json(path.read_bytes().decode(), f"{repository}: {MANIFEST}")
    except UnicodeDecodeError:
        raise HubError(f"{repository}: its {MANIFEST} is not text") from None


def published_there(url: str, token: str | None, repository: str, manifests: set[bytes]) -> bool:
    """Whether one of these kcard.json is a version of the repository."""
    with talk(url, token) as api:
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
