"""Text, read in parts: UTF-8 without NUL, so that nothing binary passes for it, nor JSON in another encoding."""

import codecs
from collections.abc import Iterator
from typing import BinaryIO

from kcard.hub.refusals import Invalid

__all__ = ["check_text", "checked", "parts"]

PART = 1 << 20


def parts(stream: BinaryIO) -> Iterator[bytes]:
    """What the stream still holds, a megabyte at a time."""
    while part := stream.read(PART):
        yield part


def checked(path: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, unchanged. Raises Invalid, which names `path`, where they are not text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in pieces:
            decoder.decode(piece)
            if b"\0" in piece:
                raise Invalid(f"{path} holds a NUL byte: it is not text")
            yield piece
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8") from None


def check_text(path: str, stream: BinaryIO) -> None:
    """Read the stream to its end; Invalid where it is not text."""
    for _ in checked(path, parts(stream)):
        pass
