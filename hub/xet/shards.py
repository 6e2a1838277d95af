"""Shards: the client's list of files with the chunks and xorbs that make them up.

The list of chunks that follows is redundant with the xorbs and not read.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.xet.hashes import hash_text

__all__ = ["File", "Segment", "files", "segments"]

TAG = b"HFRepoMetaData\0" + bytes.fromhex("556967456a7b815783a5bdd95ccdd14aa9")
VERSION = 2
ENTRY = 48
END = b"\xff" * 32
VERIFIED, EXTENDED = 1 << 31, 1 << 30
MOST_FILES = 50_000


@dataclass(frozen=True)
class File:
    """A file that a shard describes.

    size      sum of its segments' declared sizes
    position  of its segments in the shard
    count     of its segments
    """

    sha256: str
    size: int
    position: int
    count: int


@dataclass(frozen=True)
class Segment:
    """Chunks `start` to `stop` (excluded) of a xorb; `size` is their unpacked bytes."""

    xorb: str
    start: int
    stop: int
    size: int


def files(shard: BinaryIO) -> list[File]:
    """The files of a shard. Raises Invalid if it is malformed or lacks a sha256."""
    shard.seek(0)
    tag, version, _ = struct.unpack("<32sQQ", _entry(shard))
    if tag != TAG or version != VERSION:
        raise Invalid(f"not a shard of version {VERSION}")
    found: list[File] = []
    while (file := _file(shard)) is not None:
        if len(found) == MOST_FILES:
            raise TooLarge(f"too many files in a shard: the limit is {MOST_FILES}; upload fewer at once")
        found.append(file)
    return found


def segments(shard: BinaryIO, file: File) -> Iterator[Segment]:
    """The segments of a file in order; the caller may seek in the shard between them."""
    for at in range(file.count):
        shard.seek(file.position + at * ENTRY)
        yield _segment(shard)


def _file(shard: BinaryIO) -> File | None:
    name, flags, count, _ = struct.unpack("<32sIIQ", _entry(shard))
    if name == END:
        return None
    position = shard.tell()
    size = sum(_segment(shard).size for _ in range(count))
    if flags & VERIFIED:
        shard.seek(count * ENTRY, 1)
    if not flags & EXTENDED:
        raise Invalid("a file of the shard has no sha256: use a newer client")
    return File(hash_text(_entry(shard)[:32]), size, position, count)


def _segment(shard: BinaryIO) -> Segment:
    xorb, _, size, start, stop = struct.unpack("<32sIIII", _entry(shard))
    if not start < stop:
        raise Invalid(f"invalid segment: chunks {start} to {stop}")
    return Segment(hash_text(xorb), start, stop, size)


def _entry(shard: BinaryIO) -> bytes:
    entry = shard.read(ENTRY)
    if len(entry) < ENTRY:
        raise Invalid("truncated shard")
    return entry
