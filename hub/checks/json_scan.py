"""JSON, read in one pass and little memory: how deep it is nested, and keys that make a loader run code.

The text is not parsed: as Python objects a tokenizer takes ten times its size, for each one that is being checked.
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
# What `trust_remote_code` obeys: which class of which file, of this repository or another, is to be run.
CODE_KEYS = (b"auto_map", b"custom_pipelines")
LONGEST_KEY = 6 * max(map(len, CODE_KEYS)) + 2  # every letter written as an escape, and the quotes
# A whole string; a bracket; the beginning of a string whose end is not there yet.
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]|"', re.DOTALL)
VALUE = re.compile(rb"\s*+(:?)\s*+(.?)", re.DOTALL)
OPENING, CLOSING = frozenset(b"[{"), frozenset(b"]}")


def check_json(path: str, stream: BinaryIO) -> None:
    """Raise Invalid for JSON that is nested too deeply or not whole, Dangerous for a key that has code run.

    Such a key in a vocabulary, before a number, is a word like others.
    """
    scan = _Scan(path)
    rest = b""
    for part in checked(path, parts(stream)):
        rest = scan.read(rest + part)
    scan.read(rest, last=True)


def check_jsonl(path: str, stream: BinaryIO) -> None:
    """Raise Invalid for lines that are too long, or nested too deeply."""
    lines = iter(lambda: stream.readline(LONGEST_LINE), b"")
    for number, line in enumerate(checked(path, lines), start=1):
        if len(line) == LONGEST_LINE:
            raise Invalid(f"{path}, line {number}: longer than {LONGEST_LINE} bytes")
        if line.count(b"[") + line.count(b"{") > DEEPEST:
            _Scan(f"{path}, line {number}", obeyed=False).read(line, last=True)


class _Scan:
    """How far a text was read, and how deep it is nested there."""

    def __init__(self, path: str, *, obeyed: bool = True) -> None:
        self._path, self._obeyed, self._depth = path, obeyed, 0

    def read(self, text: bytes, *, last: bool = False) -> bytes:
        """Go through the text; returns its end, which can't be judged until more is there."""
        for found in TOKEN.finditer(text):
            start, end = found.span()
            first = text[start]
            if first in OPENING:
                self._depth += 1
                if self._depth > DEEPEST:
                    raise Invalid(f"{self._path} is nested more than {DEEPEST} levels deep")
            elif first in CLOSING:
                self._depth -= 1
                if self._depth < 0:
                    raise Invalid(f"{self._path} is not JSON: it closes more brackets than it opens")
            elif end - start == 1:
                return self._later(text[start:], "a string that does not end", last)
            elif end - start <= LONGEST_KEY and self._is_code_key(text[start:end]):
                value = VALUE.match(text, end)
                if value is None or not value[2]:
                    # Between a key and its value there may be any amount of space.
                    if not last:
                        return self._later(text[start:], "too much space after a key", last)
                elif value[1] and value[2] in b'[{"':
                    raise Dangerous(
                        f"{self._path} holds {text[start:end].decode()}, which makes a loader run code: "
                        "take it out (the model must be one that its library knows)"
                    )
        if last and self._depth:
            raise Invalid(
                f"{self._path} is not JSON: it ends before {self._depth} of its brackets are closed"
            )
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
            raise Invalid(f"{self._path} is not JSON that is read here: {what}")
        return rest
