"""Chunks: the pieces of files that a xorb packs, each behind a header of eight bytes."""

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
    """A chunk as it was sent; `packed` has its header, `data` the bytes of the file."""

    packed: bytes
    data: bytes


def chunks(stream: BinaryIO) -> Iterator[Chunk]:
    """The chunks of a xorb one by one, up to its end or its footer; Invalid where it is malformed."""
    while header := stream.read(HEADER):
        if header.startswith(FOOTER):
            return
        if len(header) < HEADER:
            raise Invalid("the xorb ends within the header of a chunk")
        packed = header + stream.read(_lengths(header)[0])
        yield Chunk(packed, unpack(packed))


def unpack(packed: bytes) -> bytes:
    """The bytes of a chunk with its header. It never grows beyond the length that the header says."""
    stored, length = _lengths(packed)
    data = packed[HEADER:]
    if len(data) != stored:
        raise Invalid(f"a chunk has {len(data)} bytes, its header says {stored}")
    if packed[4] != STORED:
        data = _decompressed(data, length)
    if len(data) != length:
        raise Invalid(f"a chunk unpacks to {len(data)} bytes, its header says {length}")
    return _ungrouped(data) if packed[4] == GROUPED else data


def _lengths(header: bytes) -> tuple[int, int]:
    """Bytes of a chunk as it is stored and as it is in the file."""
    stored, length = int.from_bytes(header[1:4], "little"), int.from_bytes(header[5:8], "little")
    if header[0] != 0 or header[4] > GROUPED:
        raise Invalid(f"chunks of version {header[0]}, packed by method {header[4]}, are not known here")
    if not 0 < length <= LONGEST_CHUNK or stored > 2 * LONGEST_CHUNK:
        raise Invalid(f"a chunk has 1 to {LONGEST_CHUNK} bytes, not {length} (packed {stored})")
    return stored, length


def _decompressed(data: bytes, length: int) -> bytes:
    import lz4.frame  # type: ignore[import-untyped]  # comes with the extra `server`

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        unpacked: bytes = stream.decompress(data, max_length=length + 1)
    except RuntimeError as error:
        raise Invalid(f"a chunk is not LZ4: {error}") from None
    if not stream.eof:
        raise Invalid(f"a chunk unpacks to more than the {length} bytes that its header says, or to fewer")
    return unpacked


def _ungrouped(data: bytes) -> bytes:
    """Undo the grouping of every fourth byte, which makes numbers of four bytes pack better."""
    mixed, at = bytearray(len(data)), 0
    for first in range(4):
        count = (len(data) - first + 3) // 4
        mixed[first::4] = data[at : at + count]
        at += count
    return bytes(mixed)
