"""Xorbs and shards as a client makes them, to be sent whole or spoilt."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import lz4.frame  # type: ignore[import-untyped]

from kcard.hub.xet.hashes import chunk_hash, xorb_hash

__all__ = ["END", "HEADER", "described", "named", "packed", "raw_hash", "shard"]

# How a shard begins: the tag, its version, and no footer.
HEADER = b"HFRepoMetaData\0" + bytes.fromhex("556967456a7b815783a5bdd95ccdd14aa9") + struct.pack("<QQ", 2, 0)
END = b"\xff" * 32 + bytes(16)


@dataclass(frozen=True)
class Described:
    """A file as a shard describes it: its sha256, and (xorb, bytes, first chunk, last chunk + 1) of each segment."""

    sha256: str
    segments: Sequence[tuple[str, int, int, int]]
    flags: int = 1 << 30


def packed(data: bytes, scheme: int = 0, *, length: int | None = None) -> bytes:
    """A chunk with its header: stored (0), LZ4 (1), or LZ4 of bytes grouped by fours (2)."""
    body = data if scheme == 0 else lz4.frame.compress(data if scheme == 1 else _grouped(data))
    said = len(data) if length is None else length
    return bytes([0]) + len(body).to_bytes(3, "little") + bytes([scheme]) + said.to_bytes(3, "little") + body


def named(chunks: Sequence[bytes]) -> str:
    """The hash of a xorb of these chunks."""
    return xorb_hash([(chunk_hash(chunk), len(chunk)) for chunk in chunks])


def described(sha256: str, *segments: tuple[str, int, int, int], flags: int = 1 << 30) -> Described:
    """A file for `shard`."""
    return Described(sha256, segments, flags)


def shard(*files: Described) -> bytes:
    """A shard of these files; a list of chunks would follow, which no hub needs to read."""
    parts = [HEADER]
    for file in files:
        parts.append(raw_hash("0" * 64) + struct.pack("<IIQ", file.flags, len(file.segments), 0))
        for xorb, size, start, stop in file.segments:
            parts.append(raw_hash(xorb) + struct.pack("<IIII", 0, size, start, stop))
        if file.flags & 1 << 31:
            parts.append(bytes(48 * len(file.segments)))
        if file.flags & 1 << 30:
            parts.append(raw_hash(file.sha256) + bytes(16))
    return b"".join([*parts, END])


def raw_hash(text: str) -> bytes:
    """The 32 bytes that a hash stands for."""
    return b"".join(bytes.fromhex(text[at : at + 16])[::-1] for at in range(0, 64, 16))


def _grouped(data: bytes) -> bytes:
    return b"".join(data[first::4] for first in range(4))
