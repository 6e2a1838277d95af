"""Bytes of the store on their way to a client."""

from collections.abc import Generator, Iterator, Mapping
from itertools import chain

from starlette.responses import StreamingResponse
from starlette.types import Send

__all__ = ["Blocks"]


class Blocks(StreamingResponse):
    """Blocks of a file, each read in a thread when the client has taken the one before.

    The first is read at once: where the store fails, the answer can still say so. However it ends, and many clients
    hang up, the file is closed.
    """

    def __init__(self, blocks: Iterator[bytes], status: int, headers: Mapping[str, str]) -> None:
        self._blocks = blocks
        super().__init__(chain([next(blocks)], blocks), status, headers)

    async def stream_response(self, send: Send) -> None:
        """As the one of Starlette, which leaves it to the garbage collector to close what was being read."""
        try:
            await super().stream_response(send)
        finally:
            if isinstance(self._blocks, Generator):
                self._blocks.close()
