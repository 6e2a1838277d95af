"""Scans JSON in one pass for its nesting depth and for keys that make a loader run code.

It is not parsed: as Python objects, a tokenizer would take ten times its size in memory.
"""

import json
import re
from typing import BinaryIO

from kcard.hub.checks.text import checked, parts
from kcard.hub.refusals import Dangerous, Invalid

__all__ = ["check_json", "check_jsonl"]

DEEPEST = 64
LONGEST = 8 << 20  # bytes of a string
LONGEST_LINE = 32 << 20
# Keys that `trust_remote_code` obeys: the class and file, in this repository or another, to run.
CODE_KEYS = (b"auto_map", b"custom_pipelines")
LONGEST_KEY = 6 * max(map(len, CODE_KEYS)) + 2  # every letter escaped, and the quotes
# A whole string; a bracket; the start of a string that is still incomplete.
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]|"', re.DOTALL)
VALUE = re.compile(rb"\s*+(:?)\s*+(.?)", re.DOTALL)
OPENING, CLOSING = frozenset(b"[{"), frozenset(b"]}")


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
    lines = iter(lambda: stream.readline(LONGEST_LINE), b"")
    for number, line in enumerate(checked(path, lines), start=1):
        if len(line) == LONGEST_LINE:
            raise Invalid(f"{path}, line {number}: too long: the limit is {LONGEST_LINE} bytes")
        if line.count(b"[") + line.count(b"{") > DEEPEST:
            _Scan(f"{path}, line {number}", obeyed=False).read(line, last=True)


class _Scan:
    """The state of a scan."""

    def __init__(self, path: str, *, obeyed: bool = True) -> None:
        self._path, self._obeyed, self._depth = path, obeyed, 0

    def read(self, text: bytes, *, last: bool = False) -> bytes:
        """Scan the text; returns its incomplete end, to be scanned with what follows."""
        for found in TOKEN.finditer(text):
            start, end = found.span()
            first = text[start]
            if first in OPENING:
                self._depth += 1
                if self._depth > DEEPEST:
                    raise Invalid(f"{self._path}: JSON nested too deeply: the limit is {DEEPEST} levels")
            elif first in CLOSING:
                self._depth -= 1
                if self._depth < 0:
                    raise Invalid(f"{self._path} is not valid JSON: unbalanced closing bracket")
            elif end - start == 1:
                return self._later(text[start:], "unterminated string", last)
            elif end - start <= LONGEST_KEY and self._is_code_key(text[start:end]):
                value = VALUE.match(text, end)
                if value is None or not value[2]:
                    # Any amount of whitespace may follow a key.
                    if not last:
                        return self._later(text[start:], "too much whitespace after a key", last)
                elif value[1] and value[2] in b'[{"':
                    raise Dangerous(
                        f"{self._path}: {text[start:end].decode()} makes loaders run code: remove it, and use a model "
                        "that its library supports"
                    )
        if last and self._depth:
            raise Invalid(f"{self._path} is not valid JSON: {self._depth} unclosed brackets at the end")
        return b""

    def _is_code_key(self, string: bytes) -> bool:
        if not self._obeyed:
            return False
        if b"\\" not in string:
            return string[1:-1] in CODE_KEYS
        try:
            return str(json.loads(string)).encode("utf-8", "surrogatepass") in CODE_KEYS
        except ValueError:
            return False

    def _later(self, rest: bytes, what: str, last: bool) -> bytes:
        if last or len(rest) > LONGEST:
            raise Invalid(f"{self._path} is not valid JSON: {what}")
        return rest
