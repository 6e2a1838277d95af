"""A whole hub in one tar file. Written here, read in restore.py.

SHA256SUMS         the sha256 of every file below, as `sha256sum --check` reads it
hub/hub.db         the database, SQLite
hub/blobs/ab/ab…   every file of every version
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from kcard.errors import DamagedCard, UsageError
from kcard.faults import reach
from kcard.hub.catalogue import Catalogue
from kcard.hub.database import Database
from kcard.hub.disk import Readable, beside, link_or_copy, partial_folder, sync_folder
from kcard.hub.store import BlobStore
from kcard.manifest import file_digest

__all__ = ["BLOBS", "DATABASE", "SUMS", "Counted", "Report", "member", "save"]

Report: TypeAlias = Callable[[int], None]

SUMS = "SHA256SUMS"
DATABASE = "hub/hub.db"
BLOBS = "hub/blobs"


class Counted:
    """A stream that hashes what is read from it and says how far it has come."""

    def __init__(self, stream: Readable, before: int, report: Report | None) -> None:
        self._stream, self._report = stream, report
        self.done = before
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        self.digest.update(block)
        self.done += len(block)
        if self._report is not None:
            self._report(self.done)
        return block


def save(path: Path, database: Database, blobs: BlobStore, report: Report | None) -> Path:
    """See Hub.backup."""
    target = path.expanduser().absolute()
    if target.exists():
        raise UsageError(f"{target} exists: name a new file")
    with partial_folder(blobs.partial) as held, beside(target) as scratch:
        found = _hold(held, database, blobs)
        digests = {DATABASE: file_digest(held / DATABASE)} | {member(sha256): sha256 for sha256 in found}
        with (scratch / "backup").open("xb") as stream:
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
                _write(tar, held, digests, report)
            stream.flush()
            os.fsync(stream.fileno())
        reach("backup.written")
        (scratch / "backup").rename(target)
        sync_folder(target.parent)
        reach("backup.placed")
    return target


def _hold(held: Path, database: Database, blobs: BlobStore) -> list[str]:
    """The database and its blobs at one moment, in a folder of ours, where no removal reaches them."""
    with Catalogue(database).referenced() as (files, _):
        (held / "hub").mkdir()
        database.copy(held / DATABASE)
        reach("backup.database")
        for sha256 in files:
            target = held / member(sha256)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                link_or_copy(blobs.path(sha256), target)
            except FileNotFoundError:
                raise DamagedCard(
                    f"blob {sha256[:12]}… is missing: `kcard verify` names the cards that need it"
                ) from None
    reach("backup.linked")
    return sorted(files)


def member(sha256: str) -> str:
    """The name of a blob in the backup."""
    return f"{BLOBS}/{sha256[:2]}/{sha256}"


def _write(tar: tarfile.TarFile, held: Path, digests: Mapping[str, str], report: Report | None) -> None:
    sums = "".join(f"{sha256}  {name}\n" for name, sha256 in digests.items()).encode()
    info = tarfile.TarInfo(SUMS)
    info.size, info.mode = len(sums), 0o444
    tar.addfile(info, io.BytesIO(sums))
    done = 0
    for name, sha256 in digests.items():
        info = tarfile.TarInfo(name)
        info.size, info.mode = (held / name).stat().st_size, 0o444
        with (held / name).open("rb") as stream:
            counted = Counted(stream, done, report)
            tar.addfile(info, counted)
        if counted.digest.hexdigest() != sha256:
            raise DamagedCard(f"{name} is damaged: `kcard verify` names the cards that need it")
        done = counted.done
        reach("backup.member")
