"""The lines of a commit that a client uploads: a header, then an operation in each.

They are untrusted, so their length is limited and the type of every value is checked.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, BinaryIO, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kcard.hub.errors import Invalid, TooLarge
from kcard.hub.server.dependencies import NO_NUL
from kcard.hub.server.responses import describe_invalid
from kcard.hub.values import Delete, DeleteFolder
from kcard.io import parse

MAX_OPERATIONS = 25_000  # of one commit
LINE_OVERHEAD_BYTES = 16_384  # of a line besides the content of its file


class LineValue(BaseModel):
    """The value of a line, whose other fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class Header(LineValue):
    """Title and message; `parentCommit` is the expected head of the branch."""

    summary: Annotated[str, Field(pattern=NO_NUL)]
    description: Annotated[str, Field(pattern=NO_NUL)] = ""
    parentCommit: Annotated[str, Field(pattern=r"\A[0-9a-f]{7,40}\z")] | None = None  # noqa: N815 # the protocol's

    @property
    def title(self) -> str:
        """The title in one line, since lists show it."""
        return " ".join(self.summary.split())


class InlineValue(LineValue):
    """A file with its encoded content."""

    path: str
    content: str
    encoding: Literal["base64", "utf-8"] = "utf-8"


@dataclass(frozen=True)
class Inline:
    """A file with its content."""

    path: str
    content: bytes


class Large(LineValue):
    """A file that was uploaded before. Without a size it is a copy of an existing file."""

    path: str
    oid: Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
    algo: Literal["sha256"] = "sha256"
    size: Annotated[int, Field(ge=0)] | None = None


class DeletedPath(LineValue):
    """A file or folder to delete."""

    path: str


Line: TypeAlias = Inline | Large | Delete | DeleteFolder
VALUES: dict[str, type[LineValue]] = {
    "header": Header,
    "file": InlineValue,
    "lfsFile": Large,
    "deletedFile": DeletedPath,
    "deletedFolder": DeletedPath,
}


def read_lines(stream: BinaryIO, max_bytes: int) -> tuple[Header, Iterator[Line]]:
    """Return the header of a commit, and its operations. `max_bytes` is the limit of an inline file.

    Raises Invalid for a malformed line, TooLarge for a line or a number of lines over the limits.
    """
    max_line_bytes = LINE_OVERHEAD_BYTES + 4 * (max_bytes // 3 + 1)

    def read_line(number: int) -> tuple[str, LineValue] | None:
        text = stream.readline(max_line_bytes + 1)
        if len(text) > max_line_bytes:
            raise TooLarge(
                f"line {number}: inline file over the limit of {max_bytes} bytes: upload it by LFS"
            )
        return _parse_line(text, number) if text else None

    def read_operations() -> Iterator[Line]:
        for number in range(2, MAX_OPERATIONS + 2):
            line = read_line(number)
            if line is None:
                return
            key, value = line
            match value:
                case Header():
                    raise Invalid(f"line {number}: a commit has one header, in its first line")
                case DeletedPath(path=path) if key == "deletedFile":
                    yield Delete(path)
                case DeletedPath(path=path):
                    yield DeleteFolder(path.rstrip("/"))
                case InlineValue():
                    yield _decode(value, number, max_bytes)
                case Large():
                    yield value
        if stream.read(1):
            raise TooLarge(f"more than {MAX_OPERATIONS} operations: split the commit")

    first = read_line(1)
    if first is None:
        raise Invalid("empty commit: the first line must be a header")
    header = first[1]
    if not isinstance(header, Header):
        raise Invalid("line 1: a commit begins with its header")
    return header, read_operations()


def _parse_line(text: bytes, number: int) -> tuple[str, LineValue]:
    """Return the key and the value of a line. Raises Invalid."""
    try:
        data = parse(text.decode())
    except ValueError as error:
        raise Invalid(f"line {number} is not JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("value"), dict):
        raise Invalid(f'line {number}: expected {{"key": …, "value": {{…}}}}')
    key = data.get("key")
    if not isinstance(key, str) or key not in VALUES:
        raise Invalid(f"line {number}: unknown key {str(key)[:40]!r}")
    try:
        return key, VALUES[key].model_validate(data["value"])
    except ValidationError as error:
        raise Invalid(f"line {number}: {describe_invalid(error.errors())}") from None


def _decode(value: InlineValue, number: int, max_bytes: int) -> Inline:
    content = value.content.encode()
    if value.encoding == "base64":
        try:
            content = base64.b64decode(content, validate=True)
        except binascii.Error:
            raise Invalid(f"line {number}: content is not valid base64") from None
    if len(content) > max_bytes:
        raise TooLarge(
            f"{value.path[:200]}: inline file over the limit of {max_bytes} bytes: upload it by LFS"
        )
    return Inline(value.path, content)
