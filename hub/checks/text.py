"""Checks of text, read in parts: UTF-8 without NUL, so that neither binary data nor UTF-16 passes."""

import codecs
from collections.abc import Iterator
from typing import BinaryIO

from kcard.hub.refusals import Invalid

__all__ = ["check_text", "checked", "parts"]

PART = 1 << 20


def parts(stream: BinaryIO) -> Iterator[bytes]:
    """The rest of the stream, a megabyte at a time."""
    while part := stream.read(PART):
        yield part


def checked(path: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, unchanged. Raises Invalid if they are not text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in pieces:
            decoder.decode(piece)
            if b"\0" in piece:
                raise Invalid(f"{path} is not text: it contains a NUL byte")
            yield piece
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8") from None


def check_text(path: str, stream: BinaryIO) -> None:
    """Read the stream to its end. Raises Invalid if it is not text."""
    for _ in checked(path, parts(stream)):
        pass
