"""Chunks: the pieces of files in a xorb, each after a header of eight bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from kcard.hub.refusals import Invalid

__all__ = ["HEADER", "LONGEST_CHUNK", "Chunk", "chunks", "unpack"]

HEADER = 8
LONGEST_CHUNK = 128 * 1024
FOOTER = b"XETBLOB"
STORED, LZ4, GROUPED = range(3)


@dataclass(frozen=True)
class Chunk:
    """A chunk: `packed` with its header as sent, `data` as in the file."""

    packed: bytes
    data: bytes


def chunks(stream: BinaryIO) -> Iterator[Chunk]:
    """The chunks of a xorb, up to its end or footer. Raises Invalid if malformed."""
    while header := stream.read(HEADER):
        if header.startswith(FOOTER):
            return
        if len(header) < HEADER:
            raise Invalid("truncated xorb: incomplete chunk header")
        packed = header + stream.read(_lengths(header)[0])
        yield Chunk(packed, unpack(packed))


def unpack(packed: bytes) -> bytes:
    """The bytes of a chunk, never more than its header says."""
    stored, length = _lengths(packed)
    data = packed[HEADER:]
    if len(data) != stored:
        raise Invalid(f"chunk of {len(data)} bytes, but its header says {stored}")
    if packed[4] != STORED:
        data = _decompressed(data, length)
    if len(data) != length:
        raise Invalid(f"chunk unpacks to {len(data)} bytes, but its header says {length}")
    return _ungrouped(data) if packed[4] == GROUPED else data


def _lengths(header: bytes) -> tuple[int, int]:
    """Sizes of a chunk: packed and unpacked."""
    stored, length = int.from_bytes(header[1:4], "little"), int.from_bytes(header[5:8], "little")
    if header[0] != 0 or header[4] > GROUPED:
        raise Invalid(f"unknown chunk version {header[0]} or compression {header[4]}")
    if not 0 < length <= LONGEST_CHUNK or stored > 2 * LONGEST_CHUNK:
        raise Invalid(f"invalid chunk size {length} (packed {stored}): expected 1 to {LONGEST_CHUNK} bytes")
    return stored, length


def _decompressed(data: bytes, length: int) -> bytes:
    import lz4.frame  # type: ignore[import-untyped]  # in the extra `server`

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        unpacked: bytes = stream.decompress(data, max_length=length + 1)
    except RuntimeError as error:
        raise Invalid(f"chunk is not valid LZ4: {error}") from None
    if not stream.eof:
        raise Invalid(f"chunk does not unpack to the {length} bytes that its header says")
    return unpacked


def _ungrouped(data: bytes) -> bytes:
    """Undo the grouping of every fourth byte, which improves the compression of 4-byte numbers."""
    mixed, at = bytearray(len(data)), 0
    for first in range(4):
        count = (len(data) - first + 3) // 4
        mixed[first::4] = data[at : at + count]
        at += count
    return bytes(mixed)
