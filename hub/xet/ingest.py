"""Xet uploads: assembles files from the chunks that newer clients send.

Files are assembled once, checked by sha256 and stored as plain files; downloads don't use Xet.
"""

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kcard.hub.accounts.identity import Identity
from kcard.hub.records.database import Database
from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.repositories.reservations import Reservations
from kcard.hub.repositories.uploads import Uploads
from kcard.hub.store.blobs import Blobs
from kcard.hub.store.disk import partial_folder
from kcard.hub.xet.shards import File, files, segments
from kcard.hub.xet.xorbs import Sender, Xorb, Xorbs

__all__ = ["Ingest"]

MOST_XORBS = 20_000
MOST_OPEN = 16
# Clients send chunks of at least 8 KiB, except for the last one. Far smaller ones would only cost time.
LEAST_CHUNK = 1024
SPARE_CHUNKS = 64
SHARE = 4  # how many of the largest files one shard may describe
RENEW_SECONDS = 30


class Ingest:
    """Accepts xorbs and shards, and stores the assembled files as uploads of the account.

    `quota`: the default quota of a namespace in bytes; None: no limit.
    """

    def __init__(
        self, database: Database, blobs: Blobs, uploads: Uploads, *, quota: int | None = None
    ) -> None:
        self.xorbs = Xorbs(blobs.partial.parent / "xorbs", database)
        self._blobs, self._uploads = blobs, uploads
        self._reservations = Reservations(database, quota=quota)

    def put_xorb(self, sender: Sender, name: str, sent: Path) -> bool:
        """Store a xorb; returns whether it was sent for the first time. Raises Invalid, TooLarge."""
        charged = sender.repository_id
        most = None if charged is None else self._reservations.limit(charged)
        return self.xorbs.put(sender, name, sent, most=most)

    def put_shard(
        self, identity: Identity, sent: Path, *, largest: int, repository_id: int | None = None
    ) -> list[tuple[str, int]]:
        """Assemble and store the files of a shard, each once; returns the sha256 and size of each.

        largest        limit of a file in bytes; all new files together may have SHARE times as many
        repository_id  the repository whose namespace is charged; None: nobody is

        Raises Invalid if the shard is malformed, uses a xorb that the account did not send, or a sha256 does not
        match; TooLarge. Files before the invalid one stay stored.
        """
        with sent.open("rb") as shard:
            described = _distinct(files(shard))
            known = self._uploads.usable_of(identity, described)
            new = [file for file in described.values() if known.get(file.sha256) != file.size]
            _fits(new, largest)
            sender = Sender(identity.account_id, repository_id, identity.repository_id is not None)
            self.xorbs.claim(sender, _wanted(shard, new))
            there = {file.sha256: file.size for file in described.values() if file not in new}
            if there:
                self._uploads.record(identity.account_id, there, repository_id)
            self._rebuild_all(sender, shard, new)
        return [(file.sha256, file.size) for file in described.values()]

    def _rebuild_all(self, sender: Sender, shard: BinaryIO, new: Sequence[File]) -> None:
        total, charged = sum(file.size for file in new), sender.repository_id
        reserved = self._reservations.reserve(charged, total) if new and charged is not None else None
        try:
            with _Opened(self.xorbs) as opened:
                for file in new:
                    self._rebuild(sender, shard, file, opened, reserved)
        finally:
            if reserved is not None:
                self._reservations.release(reserved)

    def _rebuild(
        self, sender: Sender, shard: BinaryIO, file: File, opened: "_Opened", reserved: int | None
    ) -> None:
        with partial_folder(self._blobs.partial) as folder:
            path = folder / "file"
            with path.open("xb") as target:
                sha256 = _joined(self._renewing(_pieces(shard, file, opened), reserved), target)
            if sha256 != file.sha256:
                raise Invalid(f"the assembled file has sha256 {sha256[:12]}…, expected {file.sha256[:12]}…")
            self._uploads.store(
                sender.account_id,
                path,
                file.sha256,
                file.size,
                repository_id=sender.repository_id,
                reservation=reserved,
            )

    def _renewing(self, pieces: Iterator[bytes], reserved: int | None) -> Iterator[bytes]:
        """The pieces, while their reservation is renewed."""
        renewed = time.monotonic()
        for piece in pieces:
            if reserved is not None and time.monotonic() > renewed + RENEW_SECONDS:
                self._reservations.renew(reserved)
                renewed = time.monotonic()
            yield piece


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


def _distinct(described: Iterable[File]) -> dict[str, File]:
    """The files by sha256. One that is described again is the same file: it is assembled once."""
    found: dict[str, File] = {}
    for file in described:
        if found.setdefault(file.sha256, file).size != file.size:
            raise Invalid(f"the shard gives two sizes for the file with sha256 {file.sha256[:12]}…")
    return found


def _fits(new: Sequence[File], largest: int) -> None:
    for file in new:
        if file.size > largest:
            raise TooLarge(f"file of {file.size} bytes: the limit is {largest}")
    if sum(file.size for file in new) > SHARE * largest:
        raise TooLarge(
            f"the files of a shard have more than {SHARE * largest} bytes: upload fewer files at once"
        )


def _wanted(shard: BinaryIO, described: Sequence[File]) -> set[str]:
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
