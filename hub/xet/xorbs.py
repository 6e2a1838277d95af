"""Xorbs: uploaded packs of chunks, kept while clients may refer to them.

Clients remember sent chunks for three weeks and reuse them in later files, so xorbs are kept for KEPT after their last
use.
"""

import os
import secrets
from array import array
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import xorb_uploads, xorbs
from kcard.hub.records.utc import now
from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.repositories.reservations import owner_of
from kcard.hub.store.disk import sync_folder
from kcard.hub.xet.chunks import HEADER, chunks, unpack
from kcard.hub.xet.hashes import chunk_hash, xorb_hash

__all__ = ["KEPT", "LARGEST_XORB", "Sender", "Xorb", "Xorbs"]

# Clients remember for 21 days; the rest is for slow uploads and clock differences.
KEPT = timedelta(days=30)
MOST_CHUNKS = 8 * 1024
MOST_BYTES = 64 << 20
# Bytes of a request: incompressible chunks, their headers, and an unused footer.
LARGEST_XORB = MOST_BYTES + MOST_CHUNKS * (HEADER + 128)
OFFSET = "I"
BATCH = 100


class Xorb:
    """An open xorb. Its chunks are followed by their end offsets and their number."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        width = array(OFFSET).itemsize
        self._file.seek(-width, os.SEEK_END)
        count = int.from_bytes(self._file.read(width), "little")
        self._file.seek(-width * (count + 1), os.SEEK_END)
        self._ends = array(OFFSET, self._file.read(width * count))

    def unpack(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes of chunks `start` to `stop`, one by one. Raises Invalid for missing chunks."""
        if stop > len(self._ends):
            raise Invalid(f"the shard refers to chunk {stop - 1} of a xorb with {len(self._ends)} chunks")
        offset = self._ends[start - 1] if start else 0
        self._file.seek(offset)
        for end in self._ends[start:stop]:
            yield unpack(self._file.read(end - offset))
            offset = end

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True)
class Sender:
    """Who sends a xorb: an account, for a repository, whose namespace is charged.

    bound  whether it is with a token for that repository only, which can't use what was sent for others
    """

    account_id: int
    repository_id: int | None = None
    bound: bool = False

    def sent(self) -> ColumnElement[bool]:
        """The condition on `xorb_uploads` for what the sender may use."""
        mine = xorb_uploads.c.account_id == self.account_id
        return and_(mine, xorb_uploads.c.repository_id == self.repository_id) if self.bound else mine


class Xorbs:
    """Xorbs at `root`/ab/abcdef…, named by hash. Accounts may use only xorbs that they have sent."""

    def __init__(self, root: Path, database: Database) -> None:
        self._root = root
        self._database = database

    @cached_property
    def name(self) -> str:
        """The random name of this collection: clients must forget what they sent to another one."""
        path = self._root / "name"
        if not path.exists():
            self._root.mkdir(parents=True, exist_ok=True)
            draft = self._root / f"name.{secrets.token_hex(8)}"
            draft.write_text(secrets.token_hex(16))
            with suppress(FileExistsError):  # another process was faster
                os.link(draft, path)
            draft.unlink()
        return path.read_text()

    def put(self, sender: Sender, name: str, sent: Path, *, most: int | None = None) -> bool:
        """Store a xorb; returns whether the sender sent it for the first time. `sent` is moved.

        `most`: bytes that the xorbs of the sender's namespace may take; None: no limit. The result does not depend on
        other accounts. Raises Invalid if it is malformed or does not match its hash, TooLarge.
        """
        ends = _checked(sent, name)
        with sent.open("r+b") as file:
            file.truncate(ends[-1])
            file.seek(0, os.SEEK_END)
            file.write(ends.tobytes() + len(ends).to_bytes(ends.itemsize, "little"))
            file.flush()
            os.fsync(file.fileno())
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._database.write() as connection:  # `collect` waits
            size = path.stat().st_size if path.exists() else sent.stat().st_size
            new = _record(connection, sender, name, size, len(ends))
            if new and most is not None and _charged(connection, sender) > most:
                raise TooLarge(
                    f"too many recent uploads for a quota of {most} bytes: set HF_HUB_DISABLE_XET=1, or try again later"
                )
            if not path.exists():
                sent.replace(path)
        sync_folder(path.parent)
        return new

    def claim(self, sender: Sender, names: Collection[str]) -> None:
        """Keep these for KEPT from now on. Raises Invalid for one that the sender has not sent."""
        wanted = sorted(names)
        for batch in (wanted[at : at + BATCH] for at in range(0, len(wanted), BATCH)):
            with self._database.write() as connection:
                theirs = select(xorb_uploads.c.hash).where(sender.sent(), xorb_uploads.c.hash.in_(batch))
                mine = connection.scalars(theirs)
                missing = set(batch).difference(name for name in mine if self._path(name).exists())
                connection.execute(update(xorbs).where(xorbs.c.hash.in_(batch)).values(used=now()))
            if missing:
                raise Invalid(
                    f"xorb {min(missing)[:12]}… was not uploaded by this account: delete the client's cache "
                    "(~/.cache/huggingface/xet) or set HF_HUB_DISABLE_XET=1, and upload again"
                )

    def open(self, name: str) -> Xorb:
        """A xorb that was claimed."""
        return Xorb(self._path(name))

    def size(self, account_id: int) -> int:
        """Bytes of an account's xorbs."""
        with self._database.read() as connection:
            return _size(connection, xorb_uploads.c.account_id == account_id)

    def collect(self, *, dry_run: bool = False, at: datetime | None = None) -> list[tuple[Path, int]]:
        """Delete xorbs unused for KEPT, and files without a row; returns paths and sizes."""
        found: list[tuple[Path, int]] = []
        before = (at or now()) - KEPT
        files = sorted(self._root.glob("??/*"))
        for batch in (files[at : at + BATCH] for at in range(0, len(files), BATCH)):
            with self._database.write() as connection:
                kept = set(
                    connection.scalars(
                        select(xorbs.c.hash).where(
                            xorbs.c.hash.in_([path.name for path in batch]), xorbs.c.used >= before
                        )
                    )
                )
                old = [path for path in batch if path.name not in kept]
                found += [(path, path.stat().st_size) for path in old]
                if not dry_run:
                    connection.execute(delete(xorbs).where(xorbs.c.hash.in_([path.name for path in old])))
                    for path in old:
                        path.unlink(missing_ok=True)
        return found

    def _path(self, name: str) -> Path:
        return self._root / name[:2] / name


def _checked(sent: Path, name: str) -> "array[int]":
    """The end offsets of the chunks of a xorb, after checking its hash."""
    leaves, ends, offset, size = [], array(OFFSET), 0, 0
    with sent.open("rb") as stream:
        for chunk in chunks(stream):
            offset += len(chunk.packed)
            size += len(chunk.data)
            if size > MOST_BYTES or len(ends) == MOST_CHUNKS:
                raise TooLarge(f"xorb too large: the limit is {MOST_CHUNKS} chunks and {MOST_BYTES} bytes")
            ends.append(offset)
            leaves.append((chunk_hash(chunk.data), len(chunk.data)))
    if not leaves:
        raise Invalid("empty xorb")
    if (found := xorb_hash(leaves)) != name:
        raise Invalid(f"the xorb has hash {found[:12]}…, expected {name[:12]}…: upload it again")
    return ends


def _record(connection: Connection, sender: Sender, name: str, size: int, count: int) -> bool:
    """Record an upload; returns whether the sender sent it for the first time."""
    known = update(xorbs).where(xorbs.c.hash == name).values(size=size, used=now())
    if not connection.execute(known).rowcount:
        connection.execute(insert(xorbs).values(hash=name, size=size, chunks=count, used=now()))
    there = select(xorb_uploads.c.id).where(sender.sent(), xorb_uploads.c.hash == name).limit(1)
    if connection.scalar(there) is not None:
        return False
    owner = None if sender.repository_id is None else owner_of(connection, sender.repository_id)
    row = {"account_id": sender.account_id, "hash": name, "namespace_id": owner}
    bound = sender.repository_id if sender.bound else None
    connection.execute(insert(xorb_uploads).values(row | {"repository_id": bound}))
    return True


def _charged(connection: Connection, sender: Sender) -> int:
    """Bytes of the xorbs of the sender's namespace."""
    if sender.repository_id is None:
        return 0
    return _size(connection, xorb_uploads.c.namespace_id == owner_of(connection, sender.repository_id))


def _size(connection: Connection, condition: ColumnElement[bool]) -> int:
    joined = xorbs.join(xorb_uploads, xorb_uploads.c.hash == xorbs.c.hash)
    query = select(func.coalesce(func.sum(xorbs.c.size), 0)).select_from(joined).where(condition)
    return int(connection.scalar(query) or 0)
