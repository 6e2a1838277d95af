"""Parser of commits: newline-delimited JSON, a header and then operations.

Lines are untrusted, so their length is limited and the type of every value is checked.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.repositories.values import Delete, DeleteFolder
from kcard.json_values import parse

__all__ = ["MOST", "Header", "Inline", "Large", "Line", "read"]

MOST = 25_000  # lines of one commit
SHA256 = re.compile(r"[0-9a-f]{64}")
COMMIT = re.compile(r"[0-9a-f]{7,40}")
AROUND = 16_384  # bytes of a line besides the content of its file


@dataclass(frozen=True)
class Header:
    """Title and message; `parent` is the expected head of the branch."""

    title: str
    message: str
    parent: str | None


@dataclass(frozen=True)
class Inline:
    """A file with its content."""

    path: str
    content: bytes


@dataclass(frozen=True)
class Large:
    """A file that was uploaded before. Without a size it is a copy of an existing file."""

    path: str
    sha256: str
    size: int | None


Line: TypeAlias = Header | Inline | Large | Delete | DeleteFolder


def read(stream: BinaryIO, largest: int) -> Iterator[Line]:
    """The lines of a commit, one at a time: a header, then others. `largest`: bytes of an inline file.

    Raises Invalid for a malformed line, TooLarge for a line or a number of lines over the limits.
    """
    longest = AROUND + 4 * (largest // 3 + 1)
    for number in range(MOST + 2):
        text = stream.readline(longest + 1)
        if not text:
            if number == 0:
                raise Invalid("empty commit: the first line must be a header")
            return
        if len(text) > longest:
            raise TooLarge(
                f"line {number + 1}: inline file over the limit of {largest} bytes: upload it by LFS"
            )
        line = _line(text, number + 1)
        if isinstance(line, Header) != (number == 0):
            raise Invalid(f"line {number + 1}: a commit has one header, in its first line")
        if isinstance(line, Inline) and len(line.content) > largest:
            raise TooLarge(
                f"{line.path[:200]}: inline file over the limit of {largest} bytes: upload it by LFS"
            )
        yield line
    raise TooLarge(f"more than {MOST} operations: split the commit")


def _line(text: bytes, number: int) -> Line:
    try:
        data = parse(text.decode())
    except ValueError as error:
        raise Invalid(f"line {number} is not JSON: {error}") from None
    value = data.get("value") if isinstance(data, dict) else None
    if not isinstance(value, dict):
        raise Invalid(f'line {number}: expected {{"key": …, "value": {{…}}}}')
    fields = _Fields(number, value)
    match data.get("key"):
        case "header":
            return _header(fields)
        case "file":
            return Inline(fields.text("path"), _content(fields))
        case "lfsFile":
            return _large(fields)
        case "deletedFile":
            return Delete(fields.text("path"))
        case "deletedFolder":
            return DeleteFolder(fields.text("path").rstrip("/"))
        case other:
            raise Invalid(f"line {number}: unknown key {str(other)[:40]!r}")


@dataclass(frozen=True)
class _Fields:
    """Typed access to the value of a line."""

    number: int
    value: dict[str, Any]

    def text(self, name: str, default: str | None = None) -> str:
        found = self.value.get(name, default)
        if not isinstance(found, str):
            raise Invalid(f"line {self.number}: {name} must be a string")
        return found


def _header(fields: _Fields) -> Header:
    # A title is one line, for lists.
    title = " ".join(fields.text("summary").split())
    parent = fields.value.get("parentCommit")
    if parent is not None and not (isinstance(parent, str) and COMMIT.fullmatch(parent)):
        raise Invalid(f"invalid parentCommit {str(parent)[:60]!r}: expected the sha of a commit")
    message = fields.text("description", "")
    if "\0" in title + message:  # PostgreSQL can't store NUL
        raise Invalid("the commit's title or description contains a NUL character")
    return Header(title, message, parent)


def _content(fields: _Fields) -> bytes:
    content, encoding = fields.text("content"), fields.text("encoding", "utf-8")
    match encoding:
        case "base64":
            try:
                return base64.b64decode(content, validate=True)
            except (binascii.Error, ValueError):
                raise Invalid(f"line {fields.number}: content is not valid base64") from None
        case "utf-8":
            return content.encode()
        case _:
            raise Invalid(f"line {fields.number}: unknown encoding {encoding[:40]!r}: use base64 or utf-8")


def _large(fields: _Fields) -> Large:
    sha256, size = fields.text("oid"), fields.value.get("size")
    if fields.text("algo", "sha256") != "sha256" or not SHA256.fullmatch(sha256):
        raise Invalid(f"line {fields.number}: oid {sha256[:80]!r} is not a sha256")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise Invalid(f"line {fields.number}: size must be a non-negative integer")
    return Large(fields.text("path"), sha256, size)
