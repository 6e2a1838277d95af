"""Xet's hashes: keyed BLAKE3 of a chunk, and a tree of such hashes for a xorb, as in the published client."""

from collections.abc import Sequence
from typing import TypeAlias

__all__ = ["Leaf", "chunk_hash", "hash_text", "xorb_hash"]

# The hash of a chunk and its length in bytes.
Leaf: TypeAlias = tuple[bytes, int]

CHUNK_KEY = bytes.fromhex("6697f5775b9550de3135cbaca597181c9de421109beb2b58b4d0b04b93adf229")
NODE_KEY = bytes.fromhex("017ec5c7a5472996fd946666b48a02e65ddd536f37c76dd2f86352e64a53713f")
BRANCHES = 4
WIDEST = 2 * BRANCHES + 1


def hash_text(raw: bytes) -> str:
    """The text of a 32-byte hash: four little-endian numbers in hexadecimal."""
    return "".join(raw[at : at + 8][::-1].hex() for at in range(0, 32, 8))


def chunk_hash(data: bytes) -> bytes:
    """The hash of a chunk's unpacked bytes."""
    return _keyed(data, CHUNK_KEY)


def xorb_hash(leaves: Sequence[Leaf]) -> str:
    """The hash of a xorb of at least one chunk: a tree whose nodes end at a hash divisible by 4."""
    level = list(leaves)
    while len(level) > 1:
        above = []
        while level:
            end = _node_end(level)
            above.append(_node(level[:end]))
            del level[:end]
        level = above
    return hash_text(level[0][0])


def _node_end(level: Sequence[Leaf]) -> int:
    """The number of children of the next node: 3 to 9, or 2 at the end."""
    last = min(WIDEST, len(level))
    return next((at + 1 for at in range(2, last) if level[at][0][24] % BRANCHES == 0), last)


def _node(children: Sequence[Leaf]) -> Leaf:
    lines = "".join(f"{hash_text(raw)} : {length}\n" for raw, length in children)
    return _keyed(lines.encode(), NODE_KEY), sum(length for _, length in children)


def _keyed(data: bytes, key: bytes) -> bytes:
    try:
        from blake3 import blake3
    except ImportError as error:
        from kcard.errors import MissingExtra

        raise MissingExtra("Xet uploads need blake3: pip install 'kcard[server]'") from error
    return blake3(data, key=key).digest()
