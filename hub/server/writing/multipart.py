"""Forms with files, read from the disk where the request's body was spooled."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from kcard.hub.refusals import Invalid, TooLarge

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

__all__ = ["UploadedFile", "UploadedForm", "read"]

BLOCK = 1 << 20
MOST = 1000  # parts
LONGEST_FIELD, LONGEST_HEADER = 100_000, 8_192  # bytes


@dataclass(frozen=True)
class UploadedFile:
    """A file of a form: the field, the name that the browser gave, and where its `size` bytes are."""

    field: str
    name: str
    path: Path
    sha256: str
    size: int


@dataclass(frozen=True)
class UploadedForm:
    """The fields and files of a form; fields without a file are left out of `files`."""

    values: Mapping[str, str]
    files: list[UploadedFile]


def read(body: Path, content_type: str, folder: Path) -> UploadedForm:
    """Read a multipart form; its files are written to `folder`. Raises Invalid, TooLarge."""
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise Invalid("expected a form with files: multipart/form-data with a boundary")
    parts = _Parts(folder)
    try:
        parser = MultipartParser(options[b"boundary"], parts.callbacks())
        with body.open("rb") as stream:
            while block := stream.read(BLOCK):
                parser.write(block)
        parser.finalize()
    except MultipartParseError as error:
        raise Invalid(f"the form is not valid multipart/form-data: {error}") from None
    finally:
        parts.close()
    if not parts.ended:
        raise Invalid("the form is incomplete: send it again")
    return UploadedForm(parts.values, parts.files)


@dataclass
class _Parts:
    """Collects the parts as the parser finds them."""

    folder: Path
    values: dict[str, str] = field(default_factory=dict)
    files: list[UploadedFile] = field(default_factory=list)
    ended: bool = False
    _count: int = 0
    _header: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    _disposition: bytes = b""
    _name: str = ""
    _filename: str | None = None
    _text: bytearray = field(default_factory=bytearray)
    _stream: BinaryIO | None = None
    _digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    _size: int = 0

    def callbacks(self) -> "MultipartCallbacks":
        """For MultipartParser."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._grow(0, data[start:end]),
            "on_header_value": lambda data, start, end: self._grow(1, data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._open,
            "on_part_data": lambda data, start, end: self._add(data[start:end]),
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def close(self) -> None:
        """Close the file of an unfinished part."""
        if self._stream is not None:
            self._stream.close()

    def _begin(self) -> None:
        self._count += 1
        if self._count > MOST:
            raise TooLarge(
                f"too many files and fields: the limit is {MOST}; upload the rest in a second step"
            )
        self._disposition, self._text, self._filename = b"", bytearray(), None

    def _grow(self, which: int, data: bytes) -> None:
        self._header[which].extend(data)
        if len(self._header[which]) > LONGEST_HEADER:
            raise Invalid(f"a header of the form is longer than {LONGEST_HEADER} bytes")

    def _end_header(self) -> None:
        name, value = map(bytes, self._header)
        self._header = (bytearray(), bytearray())
        if name.lower() == b"content-disposition":
            self._disposition = value

    def _open(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise Invalid("a part of the form has no name")
        self._name = _decoded(options[b"name"])
        if b"filename" in options:
            self._filename = _decoded(options[b"filename"])
            self._digest, self._size = hashlib.sha256(), 0
            self._stream = (self.folder / f"part{self._count}").open("xb")

    def _add(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.write(data)
            self._digest.update(data)
            self._size += len(data)
            return
        self._text.extend(data)
        if len(self._text) > LONGEST_FIELD:
            raise TooLarge(f"the field {self._name[:100]!r} is longer than {LONGEST_FIELD} bytes")

    def _end(self) -> None:
        if self._stream is None:
            self.values[self._name] = _decoded(bytes(self._text))
            return
        path = Path(self._stream.name)
        self._stream.close()
        self._stream = None
        if self._filename:  # a field without a file is sent with an empty name
            self.files.append(
                UploadedFile(self._name, self._filename, path, self._digest.hexdigest(), self._size)
            )

    def _finish(self) -> None:
        self.ended = True


def _decoded(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Invalid("the form is not UTF-8") from None
    if "\0" in text:  # PostgreSQL can't store it in text
        raise Invalid("the form contains a NUL character")
    return text
