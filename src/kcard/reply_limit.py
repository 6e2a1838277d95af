"""A limit on what an LLM's server may send: a reply without end would fill the memory.

The hooks are for clients of httpx and of httpx2, on which the openai package is built from its version 3 on.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from kcard.io import shown_size

MAX_REPLY_BYTES = 32_000_000  # of one reply, streamed or not
UNCOMPRESSED = {"Accept-Encoding": "identity"}  # headers of a request whose reply is limited


class UnreadableReply(ValueError):
    """A reply is larger than the limit, or compressed although that was not asked for: 3 MB can become 3 GB."""


def limit_reply(response: Any) -> None:
    """Limit the body of an unread response: the hook "response" of a Client. Reading it raises UnreadableReply.

    All ways to read a response go through its method iter_raw. A compressed response is refused at once.
    """
    _require_uncompressed(response)
    read = response.iter_raw

    def read_limited(chunk_size: int | None = None) -> Iterator[bytes]:
        received = 0
        for data in read(chunk_size):
            received = _count(received, data)
            yield data

    response.iter_raw = read_limited


async def limit_reply_async(response: Any) -> None:
    """Limit the body likewise: the hook "response" of an AsyncClient."""
    _require_uncompressed(response)
    read = response.aiter_raw

    async def read_limited(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        received = 0
        async for data in read(chunk_size):
            received = _count(received, data)
            yield data

    response.aiter_raw = read_limited


def _require_uncompressed(response: Any) -> None:
    if response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise UnreadableReply("its reply is compressed, which was not asked for")


def _count(received: int, data: bytes) -> int:
    """Return the bytes received with these. Raises UnreadableReply."""
    received += len(data)
    if received > MAX_REPLY_BYTES:
        raise UnreadableReply(f"its reply has more than {shown_size(MAX_REPLY_BYTES)}")
    return received
