"""Detects dangerous files by their first bytes: pickles, archives, programs.

None of them passes the check for an allowed kind of file, except a pickle of protocol 0, which looks like text.
"""

import pickletools
import re
from io import BytesIO
from typing import BinaryIO

__all__ = ["NEEDED", "PICKLE", "is_pickle", "what_it_is"]

NEEDED = 4096  # bytes from the start of a file
SEARCHED = 64 << 20  # bytes of a file in which a pickle is searched for; text ends the search after a few
# A pickle of protocol 2 or later starts with PROTO and its version, which is invalid UTF-8.
PICKLE = re.compile(rb"\x80[\x02-\x05]")
STARTS: dict[bytes, str] = {
    b"PK\x03\x04": "a zip archive (torch.save writes one around a pickle)",
    b"PK\x05\x06": "a zip archive",
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"\x93NUMPY": "a numpy array",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"\xfe\xed\xfa": "a program",
    b"\xce\xfa\xed\xfe": "a program",
    b"\xcf\xfa\xed\xfe": "a program",
    b"\xca\xfe\xba\xbe": "a program",
    b"\x00asm": "a program",
    b"GGUF": "GGUF weights",
    b"\x1f\x8b": "a gzip archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ\x00": "an xz archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a rar archive",
    b"%PDF-": "PDF",
}
TAR = slice(257, 262)
# Opcodes that look up a callable, and that call it.
LOOKS_UP = frozenset(["GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4"])
CALLS = frozenset(["REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD"])
# The module and the name of a callable: text such as "(i) first" has others.
IMPORTABLE = re.compile(r"[\w.]+ [\w.]+", re.ASCII)
NAMED = frozenset(["GLOBAL", "INST"])
ODD = bytes.maketrans(bytes([*range(0x80, 0x100), ord("\\")]), b"?" * 129)


def what_it_is(start: bytes) -> str | None:
    """What a file with these first NEEDED bytes is, if dangerous.

    Some signatures are plain letters: use it only for files that failed the check of their kind.
    """
    if is_pickle(BytesIO(start)):
        return "a pickle, which can run code"
    if start[TAR] == b"ustar":
        return "a tar archive"
    return next((what for magic, what in STARTS.items() if start.startswith(magic)), None)


def is_pickle(stream: BinaryIO) -> bool:
    """Whether a file starts with a pickle, or several in a row, that calls something when loaded."""
    start = stream.read(2)
    stream.seek(0)
    return bool(PICKLE.match(start)) or _calls(_Lines(stream))


class _Lines:
    """The first SEARCHED bytes of a stream, with text arguments that pickletools always accepts.

    It refuses arguments that are not ASCII, while loaders with another encoding accept them.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._left = stream, SEARCHED

    def read(self, size: int) -> bytes:
        return self._counted(self._stream.read(min(size, self._left)))

    def readline(self) -> bytes:
        return self._counted(self._stream.readline(self._left)).translate(ODD)

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        return data


def _calls(stream: _Lines) -> bool:
    """Whether the bytes are pickles, one of which looks up a callable and calls it. Runs nothing."""
    try:
        while True:  # genops ends with each pickle, and raises ValueError at the end of the stream
            if _one_calls(stream):
                return True
    except (ValueError, OverflowError):  # not a valid opcode: text
        return False


def _one_calls(stream: _Lines) -> bool:
    """Whether the next pickle calls something. Raises ValueError if it is not a pickle."""
    named, stack = False, list[object]()
    for opcode, argument, _ in pickletools.genops(stream):  # type: ignore[arg-type]  # it needs no more
        if not _possible(opcode, stack):
            raise ValueError(f"no operands for {opcode.name}")
        if opcode.name in NAMED and not IMPORTABLE.fullmatch(str(argument)):
            raise ValueError(f"no callable is called {argument}")
        named = named or opcode.name in LOOKS_UP
        if named and opcode.name in CALLS:
            return True
    return False


def _possible(opcode: pickletools.OpcodeInfo, stack: list[object]) -> bool:
    """Whether the opcode's operands are on the stack, which is updated.

    Nearly every letter is an opcode: without this, text that starts with `lo` would be a list and a call.
    """
    needed, mark = opcode.stack_before, pickletools.markobject
    if mark in needed:
        if mark not in stack:
            return False
        while stack.pop() is not mark:
            pass
        needed = needed[: needed.index(mark)]
    if len(needed) > len(stack):
        return False
    del stack[len(stack) - len(needed) :]
    stack.extend(opcode.stack_after)
    return True
