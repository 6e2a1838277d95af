"""Lines of a UTF-8 file, one after the other: neither the file nor an endless line is ever held whole."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kcard.errors import CorpusError
from kcard.training.corpora.document import reading

__all__ = ["LONGEST", "lines"]

CHUNK = 1 << 18
LONGEST = 1 << 26
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def lines(
    path: Path, *, whole: bool = False, nul: bool = False, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """(number, line) of every line, 1-based, without its end: \\n, \\r\\n or \\r. A byte order mark is left out.

    A line above 256 kB comes in parts under the same number, cut after white space; with `whole` it comes as it
    is, up to 64 MB. Raises CorpusError, naming file and line, for bytes that are not UTF-8, for NUL (unless `nul`
    allows it) and for longer lines. `encoding`: another than UTF-8, with a byte for each character.
    """
    with reading(path), path.open("rb") as stream:
        yield from _lines(stream, path, LONGEST if whole else CHUNK, whole, nul, encoding)


def _lines(
    stream: BinaryIO, path: Path, longest: int, whole: bool, nul: bool, encoding: str
) -> Iterator[tuple[int, str]]:
    number, rest = 1, b""
    while chunk := rest + stream.readline(longest - len(rest)):
        rest = b""
        ended = chunk.endswith(b"\n") or len(chunk) < longest
        if not ended and whole:
            raise CorpusError(f"{path}:{number} is a line of more than {longest >> 20} MB: split it")
        if not ended:
            chunk, rest = _cut(chunk)
        text = _decoded(chunk, path, number, nul, encoding)
        if number == 1:
            text = text.removeprefix("\ufeff")
        *before, last = text.rstrip("\n").removesuffix("\r").split("\r")
        for line in before:
            yield number, line
            number += 1
        yield number, last
        number += ended


def _cut(chunk: bytes) -> tuple[bytes, bytes]:
    """The chunk in two, after its last blank or else between two characters; the second part is short."""
    at = chunk.rfind(b" ", len(chunk) // 2) + 1
    if not at:
        at = len(chunk) - 1
        while at > len(chunk) - 4 and 0x80 <= chunk[at] < 0xC0:
            at -= 1
    return chunk[:at], chunk[at:]


def _decoded(chunk: bytes, path: Path, number: int, nul: bool, encoding: str) -> str:
    try:
        text = chunk.decode(encoding)
    except UnicodeDecodeError as error:
        line = number + chunk[: error.start].count(b"\r")
        if number == 1 and chunk.startswith(UTF16):
            raise CorpusError(f"{path} is UTF-16 text, not UTF-8: convert it, {_iconv('UTF-16')}") from None
        raise CorpusError(
            f"{path}:{line} is not UTF-8 text (byte 0x{chunk[error.start]:02x}): if it is text, convert it, "
            f"{_iconv('WINDOWS-1252')}; otherwise remove it from the corpus"
        ) from None
    if "\0" in text and not nul:
        raise CorpusError(
            f"{path}:{number} is not UTF-8 text (a NUL byte): convert the file or remove it from the corpus"
        )
    return text


def _iconv(encoding: str) -> str:
    return f"for example with iconv -f {encoding} -t UTF-8"
