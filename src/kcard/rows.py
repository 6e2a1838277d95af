"""Files of rows: read from JSON lines or tables, written as JSON lines, and gone on with where a run was cut off."""

import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.json_values import parse

__all__ = ["Row", "append_rows", "earlier_rows", "json_line", "opened", "read_rows", "reading", "suffix"]

Row = dict[str, Any]
TABLES = {".csv": ",", ".tsv": "\t"}


def read_rows(path: Path, name: str, remedy: str = "") -> Iterator[tuple[str, Row]]:
    """Each row, and where it stands ("records r.jsonl, line 3") for messages; blank lines are passed over.

    A .csv or .tsv has a row a line under a header of columns, any other file a JSON object a line; each may be
    compressed (.gz). `name` is what messages call the file. Raises UsageError, which names file and line, for what
    can't be read.
    """
    with reading(path, name, remedy):
        yield from _table(path, name) if suffix(path) in TABLES else _objects(path, name)


def suffix(path: Path) -> str:
    """The kind of a file by its name, in small letters, compressed or not: ".jsonl" of "dev.JSONL.gz"."""
    ending = path.suffix.lower()
    return Path(path.stem).suffix.lower() if ending == ".gz" else ending


def opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """The file's bytes, decompressed where its name ends in .gz."""
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


@contextmanager
def reading(path: Path, name: str, remedy: str = "") -> Iterator[None]:
    """Make a UsageError of a file that can't be opened or decompressed, or is not UTF-8 text."""
    remedy = f": {remedy}" if remedy else ""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{name} {path} is no whole gzip file: {error}{remedy}") from error
    except OSError as error:
        raise UsageError(f"{name} {path} can't be read: {error.strerror or error}{remedy}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} {path}: not UTF-8 text{remedy}") from error


def earlier_rows(output: Path, rows: Iterable[Row], resume: bool, added: Set[str]) -> Iterator[Row]:
    """The rows that an earlier run left in `output`, in step with `rows`; a half-written last line is cut off.

    added  the keys that such a run adds, or writes over

    Raises UsageError where there are some and the run is not to be resumed, or where they don't belong to `rows`.
    """
    if not output.exists() or not output.stat().st_size:
        return
    if not resume:
        raise UsageError(
            f"--output {output} already exists: add --resume to continue it, or choose another file"
        )
    given, whole = iter(rows), 0
    with output.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                os.truncate(output, whole)
                return
            row = _object(line, f"--output {output}, line {number}")
            if not _belongs(row, next(given, None), added):
                raise UsageError(
                    f"--output {output}, line {number} does not match the input, which has changed: "
                    "choose another --output"
                )
            whole += len(line)
            yield row


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Add rows to a file, which is made where it is missing; they are on disk when this returns."""
    try:
        stream = path.open("ab")
    except OSError as error:
        raise UsageError(f"--output {path} can't be written: {error.strerror or error}") from error
    with stream:
        try:
            stream.write(b"".join(map(json_line, rows)))  # in one piece, whatever interrupts
            stream.flush()
            os.fsync(stream.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def json_line(row: Row) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _objects(path: Path, name: str) -> Iterator[tuple[str, Row]]:
    with opened(path) as stream:
        for number, line in enumerate(stream, 1):
            if line.strip(b"\xef\xbb\xbf \t\r\n"):
                where = f"{name} {path}, line {number}"
                yield where, _object(line, where)


def _table(path: Path, name: str) -> Iterator[tuple[str, Row]]:
    with io.TextIOWrapper(opened(path), encoding="utf-8-sig", newline="") as stream:
        table = csv.DictReader(stream, strict=True, delimiter=TABLES[suffix(path)])
        try:
            for row in table:
                where = f"{name} {path}, line {table.line_num}"
                yield where, {key: value for key, value in row.items() if key is not None}
        except csv.Error as error:
            raise UsageError(
                f"{name} {path}, line {table.line_num + 1}: not {suffix(path)[1:].upper()}: {error}"
            ) from error


def _object(line: bytes, where: str) -> Row:
    try:
        row = parse(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8 text") from error
    except ValueError as error:
        raise UsageError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise UsageError(f"{where}: expected an object, found {type(row).__name__}")
    return row


def _belongs(line: Row, row: Row | None, added: Set[str]) -> bool:
    """Whether an output line is of that row; compared as text, since what JSON calls NaN equals nothing."""
    return (
        row is not None
        and not added.isdisjoint(line)
        and all(
            key in line and json.dumps(line[key]) == json.dumps(value)
            for key, value in row.items()
            if key not in added
        )
    )
