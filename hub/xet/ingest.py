"""Xet uploads: assembles files from the chunks that newer clients send.

Files are assembled once, checked by sha256 and stored as plain files; downloads don't use Xet.
"""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kcard.hub.records.database import Database
from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.repositories.uploads import Uploads
from kcard.hub.store.blobs import Blobs
from kcard.hub.store.disk import partial_folder
from kcard.hub.xet.shards import File, files, segments
from kcard.hub.xet.xorbs import Xorb, Xorbs

__all__ = ["Ingest"]

MOST_XORBS = 20_000
MOST_OPEN = 16
# Clients send chunks of at least 8 KiB, except for the last one. Far smaller ones would only cost time.
LEAST_CHUNK = 1024
SPARE_CHUNKS = 64


class Ingest:
    """Accepts xorbs and shards, and stores the assembled files as uploads of the account."""

    def __init__(self, database: Database, blobs: Blobs, uploads: Uploads) -> None:
        self.xorbs = Xorbs(blobs.partial.parent / "xorbs", database)
        self._blobs = blobs
        self._uploads = uploads

    def put_xorb(self, account_id: int, name: str, sent: Path) -> bool:
        """Store a xorb; returns whether the account sent it for the first time. Raises Invalid, TooLarge."""
        return self.xorbs.put(account_id, name, sent)

    def put_shard(
        self, account_id: int, sent: Path, *, largest: int, room: int | None = None
    ) -> list[tuple[str, int]]:
        """Assemble and store the files of a shard; returns the sha256 and size of each.

        largest  limit of a file in bytes
        room     limit of all files in bytes; None: no limit

        Raises Invalid if the shard is malformed, uses a xorb that the account did not send, or a sha256 does not
        match; TooLarge. Files before the invalid one stay stored.
        """
        with sent.open("rb") as shard:
            described = files(shard)
            new = [file for file in described if not self._known(account_id, file)]
            _fits(new, largest, room)
            self.xorbs.claim(account_id, _wanted(shard, new))
            with _Opened(self.xorbs) as opened:
                for file in new:
                    self._rebuild(account_id, shard, file, opened)
        return [(file.sha256, file.size) for file in described]

    def _known(self, account_id: int, file: File) -> bool:
        known = self._uploads.sent(account_id, file.sha256) == file.size
        if known:
            self._uploads.record(account_id, file.sha256, file.size)
        return known

    def _rebuild(self, account_id: int, shard: BinaryIO, file: File, opened: "_Opened") -> None:
        with partial_folder(self._blobs.partial) as folder:
            path = folder / "file"
            with path.open("xb") as target:
                sha256 = _joined(_pieces(shard, file, opened), target)
            if sha256 != file.sha256:
                raise Invalid(f"the assembled file has sha256 {sha256[:12]}…, expected {file.sha256[:12]}…")
            self._uploads.store(account_id, path, file.sha256, file.size)


class _Opened:
    """The xorbs of a file, a few of them open."""

    def __init__(self, xorbs: Xorbs) -> None:
        self._xorbs = xorbs
        self._open: OrderedDict[str, Xorb] = OrderedDict()

    def __enter__(self) -> "_Opened":
        return self

    def __exit__(self, *_: object) -> None:
        for xorb in self._open.values():
            xorb.close()

    def __getitem__(self, name: str) -> Xorb:
        if name not in self._open:
            if len(self._open) == MOST_OPEN:
                self._open.popitem(last=False)[1].close()
            self._open[name] = self._xorbs.open(name)
        return self._open[name]


def _fits(described: list[File], largest: int, room: int | None) -> None:
    for file in described:
        if file.size > largest:
            raise TooLarge(f"file of {file.size} bytes: the limit is {largest}")
    total = sum({file.sha256: file.size for file in described}.values())
    if room is not None and total > room:
        raise TooLarge(f"quota exceeded: {total} bytes were sent, {max(0, room)} are left")


def _wanted(shard: BinaryIO, described: list[File]) -> set[str]:
    """The xorbs of the files."""
    names: set[str] = set()
    for file in described:
        count, most = 0, SPARE_CHUNKS + file.count + file.size // LEAST_CHUNK
        for segment in segments(shard, file):
            names.add(segment.xorb)
            count += segment.stop - segment.start
            if count > most:
                raise TooLarge(f"too many chunks: {count} for a file of {file.size} bytes")
            if len(names) > MOST_XORBS:
                raise TooLarge(
                    f"too many xorbs in a shard: the limit is {MOST_XORBS}; upload fewer files at once"
                )
    return names


def _pieces(shard: BinaryIO, file: File, opened: _Opened) -> Iterator[bytes]:
    for segment in segments(shard, file):
        size = 0
        for piece in opened[segment.xorb].unpack(segment.start, segment.stop):
            size += len(piece)
            if size > segment.size:
                break
            yield piece
        if size != segment.size:
            raise Invalid(f"segment of {segment.size} bytes, but its chunks have a different size")


def _joined(pieces: Iterator[bytes], target: BinaryIO) -> str:
    """Write and flush the pieces; returns their sha256."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        target.write(piece)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()
