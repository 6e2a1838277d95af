"""JSON is scanned for its nesting depth and for keys that make a loader run code.

It is not parsed, since a tokenizer as Python objects takes ten times its size in memory. Regular expressions remove
the strings, so that no Python code runs for each string or bracket.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import BinaryIO

from kcard.hub.checks.formats import check_text_parts, read_parts
from kcard.hub.errors import Dangerous, Invalid

MAX_JSON_DEPTH = 64
MAX_STRING_BYTES = 8 << 20  # bytes of a string
MAX_LINE_BYTES = 32 << 20
# Keys that `trust_remote_code` obeys: the class and file, in this repository or another, to run.
CODE_KEYS = ("auto_map", "custom_pipelines")


def _json_spellings(letter: str) -> str:
    """Return a regular expression for a letter as JSON may spell it."""
    code = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(letter):04x}")
    return rf"(?:{letter}|\\u{code})"


CODE_KEY = f'"(?:{"|".join("".join(map(_json_spellings, key)) for key in CODE_KEYS)})"'.encode()
TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
STRING = re.compile(TEXT, re.DOTALL)
# Everything up to a code key or an unterminated string.
ORDINARY = re.compile(rb'(?:[^"]++|(?!%s)%s)*+' % (CODE_KEY, TEXT), re.DOTALL)
KEY = re.compile(CODE_KEY)
VALUE = re.compile(rb"\s*+(:?)\s*+(.?)", re.DOTALL)
MAX_HARMLESS_KEYS = 10_000  # that are harmless
STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
OTHER_BYTES = bytes(set(range(256)) - set(b"[{]}"))
DEEP_LINE = re.compile(rb"^(?:[^\n\[{]*+[\[{]){%d}[^\n]*" % (MAX_JSON_DEPTH + 1), re.MULTILINE)


def check_json(path: str, stream: BinaryIO) -> None:
    """Raise Invalid for deeply nested or incomplete JSON, Dangerous for a key that makes a loader run code.

    Such a key is harmless if its value is a number, as in a vocabulary.
    """
    scan = _Scan(path)
    rest = b""
    for part in check_text_parts(path, read_parts(stream)):
        rest = scan.read(rest + part)
    scan.read(rest, last=True)


def check_jsonl(path: str, stream: BinaryIO) -> None:
    """Raise Invalid for lines that are too long or too deeply nested."""
    number = 1
    for lines in _cut_at_line_ends(path, check_text_parts(path, read_parts(stream))):
        at = 0
        for deep in DEEP_LINE.finditer(lines):
            number, at = number + lines.count(b"\n", at, deep.start()), deep.start()
            _Scan(f"{path}, line {number}", obeyed=False).read(deep[0], last=True)
        number += lines.count(b"\n", at)


def _cut_at_line_ends(path: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces, cut at the ends of lines."""
    rest = b""
    for piece in pieces:
        whole, end, rest = (rest + piece).rpartition(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise Invalid(f"{path}: a line is too long: the limit is {MAX_LINE_BYTES} bytes")
        yield whole + end
    yield rest


class _Scan:
    """The state of a scan."""

    def __init__(self, path: str, *, obeyed: bool = True) -> None:
        self._path, self._obeyed, self._depth, self._keys = path, obeyed, 0, 0

    def read(self, text: bytes, *, last: bool = False) -> bytes:
        """Scan the text; return its incomplete end, which must be scanned with the next part."""
        end = self._skip_ordinary(text, 0)
        while key := KEY.match(text, end):
            value = VALUE.match(text, key.end())
            if (value is None or not value[2]) and not last:  # any amount of whitespace may follow a key
                return self._postpone(text[end:], "too much whitespace after a key", last)
            self._keys += 1
            if self._obeyed and value and value[1] and value[2] in b'[{"':
                raise Dangerous(
                    f"{self._path}: {key[0].decode()} makes loaders run code: remove it, and use a model that its "
                    "library supports"
                )
            if self._keys > MAX_HARMLESS_KEYS:
                raise Invalid(
                    f"{self._path}: the key {key[0].decode()} occurs more than {MAX_HARMLESS_KEYS} times"
                )
            end = self._skip_ordinary(text, key.end())
        if end < len(text):
            return self._postpone(text[end:], "unterminated string", last)
        if last and self._depth:
            raise Invalid(f"{self._path} is not valid JSON: {self._depth} unclosed brackets at the end")
        return b""

    def _skip_ordinary(self, text: bytes, start: int) -> int:
        """Return the end of the text from `start` that has neither code keys nor unterminated strings."""
        match = ORDINARY.match(text, start)
        end = match.end() if match else start
        # Count the brackets outside of strings.
        steps = memoryview(STRING.sub(b"", text[start:end]).translate(STEPS, OTHER_BYTES)).cast("b")
        depths = list(accumulate(steps, initial=self._depth))
        if max(depths) > MAX_JSON_DEPTH:
            raise Invalid(f"{self._path}: JSON nested too deeply: the limit is {MAX_JSON_DEPTH} levels")
        if min(depths) < 0:
            raise Invalid(f"{self._path} is not valid JSON: unbalanced closing bracket")
        self._depth = depths[-1]
        return end

    def _postpone(self, rest: bytes, what: str, last: bool) -> bytes:
        if last or len(rest) > MAX_STRING_BYTES:
            raise Invalid(f"{self._path} is not valid JSON: {what}")
        return rest
