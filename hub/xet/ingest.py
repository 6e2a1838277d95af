"""Xet ingest: from the chunks that a client sent to the files that they make up.

The hub takes uploads in this form because newer clients send them so, and stores plain files: what comes in is put
together once, its sha256 is checked, and downloads know nothing of it.
"""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.store.disk import partial_folder
from kcard.hub.xet.shards import File, files, segments
from kcard.hub.xet.xorbs import Xorb, Xorbs

if TYPE_CHECKING:
    from kcard.hub.records.database import Database
    from kcard.hub.repositories.uploads import Uploads
    from kcard.hub.store.blobs import Blobs

__all__ = ["Ingest"]

MOST_XORBS = 20_000
MOST_OPEN = 16
# Clients cut files into chunks of 8 KiB and more, except for the last one. Far smaller ones would cost time only.
LEAST_CHUNK = 1024
SPARE_CHUNKS = 64


class Ingest:
    """Takes xorbs and shards from accounts; what they make up becomes blobs that the account sent."""

    def __init__(self, database: "Database", blobs: "Blobs", uploads: "Uploads") -> None:
        self.xorbs = Xorbs(blobs.partial.parent / "xorbs", database)
        self._blobs = blobs
        self._uploads = uploads

    def put_xorb(self, account_id: int, name: str, sent: Path) -> bool:
        """Take a xorb that an account sent; whether it sent it for the first time. Raises Invalid or TooLarge."""
        return self.xorbs.put(account_id, name, sent)

    def put_shard(
        self, account_id: int, sent: Path, *, largest: int, room: int | None = None
    ) -> list[tuple[str, int]]:
        """Put together the files that a shard describes; the sha256 and size of each.

        largest  bytes of the largest file that is taken
        room     bytes that all of them together may have; None: any number

        Raises Invalid where the shard is malformed, wants a xorb that this account did not send, or a file does
        not have its sha256; TooLarge. Files before the faulty one are stored then, and can be used.
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
                raise Invalid(f"the chunks make a file of sha256 {sha256[:12]}…, not {file.sha256[:12]}…")
            self._uploads.store(account_id, path, file.sha256, file.size)


class _Opened:
    """The xorbs that a file is made of, a few of them open."""

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
            raise TooLarge(f"a file of {file.size} bytes: this hub takes at most {largest}")
    total = sum({file.sha256: file.size for file in described}.values())
    if room is not None and total > room:
        raise TooLarge(f"{total} bytes are more than the {max(0, room)} that the quota leaves")


def _wanted(shard: BinaryIO, described: list[File]) -> set[str]:
    """The xorbs that the files are made of."""
    names: set[str] = set()
    for file in described:
        count, most = 0, SPARE_CHUNKS + file.count + file.size // LEAST_CHUNK
        for segment in segments(shard, file):
            names.add(segment.xorb)
            count += segment.stop - segment.start
            if count > most:
                raise TooLarge(f"no client cuts a file of {file.size} bytes into {count} chunks")
            if len(names) > MOST_XORBS:
                raise TooLarge(f"a shard may use {MOST_XORBS} xorbs: upload fewer files at once")
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
            raise Invalid(f"a segment of the shard has {segment.size} bytes, its chunks have others")


def _joined(pieces: Iterator[bytes], target: BinaryIO) -> str:
    """Write the pieces and flush them to the disk; the sha256 of what was written."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        target.write(piece)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()
