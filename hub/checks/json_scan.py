"""Scans JSON for its nesting depth and for keys that make a loader run code.

It is not parsed: as Python objects, a tokenizer would take ten times its size in memory. Regular expressions remove the
strings, so that Python does nothing for each string or bracket.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import BinaryIO

from kcard.hub.checks.text import checked, parts
from kcard.hub.refusals import Dangerous, Invalid

__all__ = ["check_json", "check_jsonl"]

DEEPEST = 64
LONGEST = 8 << 20  # bytes of a string
LONGEST_LINE = 32 << 20
# Keys that `trust_remote_code` obeys: the class and file, in this repository or another, to run.
CODE_KEYS = ("auto_map", "custom_pipelines")


def _spelt(letter: str) -> str:
    """A letter as JSON may spell it."""
    code = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(letter):04x}")
    return rf"(?:{letter}|\\u{code})"


CODE_KEY = f'"(?:{"|".join("".join(map(_spelt, key)) for key in CODE_KEYS)})"'.encode()
TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
STRING = re.compile(TEXT, re.DOTALL)
# Everything up to a code key or an unterminated string.
ORDINARY = re.compile(rb'(?:[^"]++|(?!%s)%s)*+' % (CODE_KEY, TEXT), re.DOTALL)
KEY = re.compile(CODE_KEY)
VALUE = re.compile(rb"\s*+(:?)\s*+(.?)", re.DOTALL)
MOST_KEYS = 10_000  # that are harmless
STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
OTHERS = bytes(set(range(256)) - set(b"[{]}"))
DEEP_LINE = re.compile(rb"^(?:[^\n\[{]*+[\[{]){%d}[^\n]*" % (DEEPEST + 1), re.MULTILINE)


def check_json(path: str, stream: BinaryIO) -> None:
    """Raise Invalid for deeply nested or incomplete JSON, Dangerous for a key that makes a loader run code.

    Before a number, as in a vocabulary, such a key is harmless.
    """
    scan = _Scan(path)
    rest = b""
    for part in checked(path, parts(stream)):
        rest = scan.read(rest + part)
    scan.read(rest, last=True)


def check_jsonl(path: str, stream: BinaryIO) -> None:
    """Raise Invalid for lines that are too long or too deeply nested."""
    number = 1
    for lines in _whole_lines(path, checked(path, parts(stream))):
        at = 0
        for deep in DEEP_LINE.finditer(lines):
            number, at = number + lines.count(b"\n", at, deep.start()), deep.start()
            _Scan(f"{path}, line {number}", obeyed=False).read(deep[0], last=True)
        number += lines.count(b"\n", at)


def _whole_lines(path: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces, cut at the ends of lines."""
    rest = b""
    for piece in pieces:
        whole, end, rest = (rest + piece).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            raise Invalid(f"{path}: a line is too long: the limit is {LONGEST_LINE} bytes")
        yield whole + end
    yield rest


class _Scan:
    """The state of a scan."""

    def __init__(self, path: str, *, obeyed: bool = True) -> None:
        self._path, self._obeyed, self._depth, self._keys = path, obeyed, 0, 0

    def read(self, text: bytes, *, last: bool = False) -> bytes:
        """Scan the text; returns its incomplete end, to be scanned with what follows."""
        end = self._ordinary(text, 0)
        while key := KEY.match(text, end):
            value = VALUE.match(text, key.end())
            if (value is None or not value[2]) and not last:  # any amount of whitespace may follow a key
                return self._later(text[end:], "too much whitespace after a key", last)
            self._check_key(key[0], value)
            end = self._ordinary(text, key.end())
        if end < len(text):
            return self._later(text[end:], "unterminated string", last)
        if last and self._depth:
            raise Invalid(f"{self._path} is not valid JSON: {self._depth} unclosed brackets at the end")
        return b""

    def _ordinary(self, text: bytes, start: int) -> int:
        """The end of the text that starts there and has neither code keys nor unterminated strings."""
        found = ORDINARY.match(text, start)
        end = found.end() if found else start
        self._nest(STRING.sub(b"", text[start:end]))
        return end

    def _check_key(self, key: bytes, value: re.Match[bytes] | None) -> None:
        self._keys += 1
        if self._obeyed and value and value[1] and value[2] in b'[{"':
            raise Dangerous(
                f"{self._path}: {key.decode()} makes loaders run code: remove it, and use a model that its library "
                "supports"
            )
        if self._keys > MOST_KEYS:
            raise Invalid(f"{self._path}: the key {key.decode()} occurs more than {MOST_KEYS} times")

    def _later(self, rest: bytes, what: str, last: bool) -> bytes:
        if last or len(rest) > LONGEST:
            raise Invalid(f"{self._path} is not valid JSON: {what}")
        return rest

    def _nest(self, shape: bytes) -> None:
        """Count the brackets of a text without strings."""
        steps = memoryview(shape.translate(STEPS, OTHERS)).cast("b")
        depths = list(accumulate(steps, initial=self._depth))
        if max(depths) > DEEPEST:
            raise Invalid(f"{self._path}: JSON nested too deeply: the limit is {DEEPEST} levels")
        if min(depths) < 0:
            raise Invalid(f"{self._path} is not valid JSON: unbalanced closing bracket")
        self._depth = depths[-1]
