"""Xorbs: the packed chunks that clients sent, kept for as long as a client may refer to them.

A client remembers for three weeks which chunks it has sent, and sends none of them again; later files are then made
of old xorbs. So they stay for KEPT after their last use.
"""

import os
import secrets
from array import array
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, select, update

from kcard.hub.records.repository_tables import xorb_uploads, xorbs
from kcard.hub.records.utc import now
from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.store.disk import sync_folder
from kcard.hub.xet.chunks import HEADER, chunks, unpack
from kcard.hub.xet.hashes import chunk_hash, xorb_hash

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from kcard.hub.records.database import Database

__all__ = ["KEPT", "LARGEST_XORB", "Xorb", "Xorbs"]

# The client's memory lasts 21 days; some are added for uploads that take long and clocks that differ.
KEPT = timedelta(days=30)
MOST_CHUNKS = 8 * 1024
MOST_BYTES = 64 << 20
# Bytes of a request: chunks that don't shrink, their headers, and a footer that is read by nobody here.
LARGEST_XORB = MOST_BYTES + MOST_CHUNKS * (HEADER + 128)
OFFSET = "I"
BATCH = 100


class Xorb:
    """An open xorb. Behind its chunks stand the offsets at which they end, and how many they are."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        width = array(OFFSET).itemsize
        self._file.seek(-width, os.SEEK_END)
        count = int.from_bytes(self._file.read(width), "little")
        self._file.seek(-width * (count + 1), os.SEEK_END)
        self._ends = array(OFFSET, self._file.read(width * count))

    def unpack(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes of chunks `start` to `stop`, one by one; Invalid where there are not so many."""
        if stop > len(self._ends):
            raise Invalid(f"the shard wants chunk {stop - 1} of a xorb that has {len(self._ends)}")
        offset = self._ends[start - 1] if start else 0
        self._file.seek(offset)
        for end in self._ends[start:stop]:
            yield unpack(self._file.read(end - offset))
            offset = end

    def close(self) -> None:
        """Give the file back to the system."""
        self._file.close()


class Xorbs:
    """Xorbs at `root`/ab/abcdef…, each under the hash of its content. A xorb may be used by those who sent it."""

    def __init__(self, root: Path, database: "Database") -> None:
        self._root = root
        self._database = database

    @cached_property
    def name(self) -> str:
        """A name for this collection, made with it: clients must forget what they sent to another."""
        path = self._root / "name"
        if not path.exists():
            self._root.mkdir(parents=True, exist_ok=True)
            draft = self._root / f"name.{secrets.token_hex(8)}"
            draft.write_text(secrets.token_hex(16))
            with suppress(FileExistsError):  # another process was faster
                os.link(draft, path)
            draft.unlink()
        return path.read_text()

    def put(self, account_id: int, name: str, sent: Path) -> bool:
        """Take a xorb that an account sent; whether it sent it for the first time. `sent` is used up.

        Whether others have sent it is not told. Raises Invalid where it is malformed, or its content does not have
        the hash that names it; TooLarge.
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
        with self._database.write() as connection:  # whoever deletes old ones waits here
            if not path.exists():
                sent.replace(path)
            new = _record(connection, account_id, name, path.stat().st_size, len(ends))
        sync_folder(path.parent)
        return new

    def claim(self, account_id: int, names: Collection[str]) -> None:
        """Keep these for KEPT from now on; Invalid where the account has not sent one of them."""
        wanted = sorted(names)
        for batch in (wanted[at : at + BATCH] for at in range(0, len(wanted), BATCH)):
            with self._database.write() as connection:
                mine = connection.scalars(
                    select(xorb_uploads.c.hash).where(
                        xorb_uploads.c.account_id == account_id, xorb_uploads.c.hash.in_(batch)
                    )
                )
                missing = set(batch).difference(name for name in mine if self._path(name).exists())
                connection.execute(update(xorbs).where(xorbs.c.hash.in_(batch)).values(used=now()))
            if missing:
                raise Invalid(
                    f"xorb {min(missing)[:12]}… was not sent here by this account: delete the client's cache "
                    "(~/.cache/huggingface/xet) or set HF_HUB_DISABLE_XET=1, and upload again"
                )

    def open(self, name: str) -> Xorb:
        """A xorb that was claimed."""
        return Xorb(self._path(name))

    def size(self, account_id: int) -> int:
        """Bytes of the xorbs that an account sent and that are kept."""
        query = (
            select(func.coalesce(func.sum(xorbs.c.size), 0))
            .join(xorb_uploads, xorb_uploads.c.hash == xorbs.c.hash)
            .where(xorb_uploads.c.account_id == account_id)
        )
        with self._database.read() as connection:
            return int(connection.scalar(query) or 0)

    def collect(self, *, dry_run: bool = False, at: datetime | None = None) -> list[tuple[Path, int]]:
        """Delete the xorbs that nobody used for KEPT, and files that no row names; what, and its bytes."""
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
    """Where the chunks of a xorb end, when its content has the hash that names it."""
    leaves, ends, offset, size = [], array(OFFSET), 0, 0
    with sent.open("rb") as stream:
        for chunk in chunks(stream):
            offset += len(chunk.packed)
            size += len(chunk.data)
            if size > MOST_BYTES or len(ends) == MOST_CHUNKS:
                raise TooLarge(f"a xorb has at most {MOST_CHUNKS} chunks and {MOST_BYTES} bytes")
            ends.append(offset)
            leaves.append((chunk_hash(chunk.data), len(chunk.data)))
    if not leaves:
        raise Invalid("the xorb holds no chunk")
    if (found := xorb_hash(leaves)) != name:
        raise Invalid(f"the xorb has hash {found[:12]}…, not {name[:12]}…: it was changed on its way")
    return ends


def _record(connection: "Connection", account_id: int, name: str, size: int, count: int) -> bool:
    """Note who sent what; whether this account sends it for the first time."""
    known = update(xorbs).where(xorbs.c.hash == name).values(size=size, used=now())
    if not connection.execute(known).rowcount:
        connection.execute(insert(xorbs).values(hash=name, size=size, chunks=count, used=now()))
    mine = (xorb_uploads.c.account_id == account_id) & (xorb_uploads.c.hash == name)
    new = connection.scalar(select(xorb_uploads.c.hash).where(mine)) is None
    if new:
        connection.execute(insert(xorb_uploads).values(account_id=account_id, hash=name))
    return new
