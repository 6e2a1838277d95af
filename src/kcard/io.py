"""Files: JSON values, rows of JSONL and CSV, atomic writes, sizes."""

import csv
import gzip
import io
import json
import os
import re
import shutil
import sys
import time
import types
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from kcard.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

if sys.platform != "win32":
    import fcntl

# Sizes with units, such as 4.6 MB.

UNITS: dict[str, int] = {
    **{"": 1, "b": 1},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}
UNIT_NAMES = ("B", "kB", "MB", "GB", "TB")
SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?i?b?)", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return the bytes in "10GB", "512 MiB" or "1000". Raises UsageError for anything else."""
    match = SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in UNITS:
        raise UsageError(f"size {text!r}: give a number of bytes, or one with a unit, such as 500MB or 10GB")
    return round(float(match[1]) * UNITS[match[2].lower()])


def counted(count: int, noun: str) -> str:
    """Format a number of things: 1 card, 2 cards."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown_size(count: int) -> str:
    """Format a number of bytes with a unit: 4.6 MB."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(UNIT_NAMES) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if value >= 99.5 or unit == 0 else 1
    return f"{value:.{digits}f} {UNIT_NAMES[unit]}"


# Atomic writes.
#
# A write in progress has a name beside its target, .NAME.0.partial, and a lock on it, by which it can be told from what
# a killed process left behind. The next write to the same target deletes that.

STALE_SECONDS = 24 * 3600  # after which a partial file is abandoned on systems without locks


def lock_alone(path: Path) -> int | None:
    """Lock a file or folder and return the handle to close; None if the system can't.

    Raises BlockingIOError if another process has the lock.
    """
    if sys.platform == "win32":
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # a network file system
        os.close(handle)
        return None
    return handle


@contextmanager
def partial_beside(target: Path, create: Callable[[Path], object]) -> Iterator[Path]:
    """Yield a new file or folder beside `target`, from which to rename into place; deleted at the end if still there.

    `create` makes it, and raises FileExistsError if it exists.
    """
    number = 0
    while True:
        partial = target.with_name(f".{target.name}.{number}.partial")
        try:
            create(partial)
        except FileExistsError:
            number += not _delete_abandoned(partial)
            continue
        try:
            lock = lock_alone(partial)
        except (FileNotFoundError, BlockingIOError):  # taken for abandoned before it was locked
            continue
        if lock is None or _is_at(lock, partial):
            break
        os.close(lock)
    try:
        yield partial
    finally:
        _delete(partial)
        if lock is not None:
            os.close(lock)


def _delete_abandoned(partial: Path) -> bool:
    """Delete what a killed process left; return whether its name is free."""
    try:
        lock = lock_alone(partial)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    try:
        if lock is None and partial.stat().st_mtime > time.time() - STALE_SECONDS:
            return False
        if lock is None or _is_at(lock, partial):
            _delete(partial)
    except FileNotFoundError:
        return True
    finally:
        if lock is not None:
            os.close(lock)
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Return whether an open file is the one that has this path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path, *, parents: bool = False, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a stream whose content replaces the file, atomically, when the block ends; if it fails, the old file stays.

    parents  whether to create a missing folder
    mode     permissions of the new file, less the umask
    """
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)

    def create(new: Path) -> None:
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))

    with partial_beside(path, create) as partial:
        with partial.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)


def write_text(path: Path, text: str, *, parents: bool = False) -> None:
    """Write a file atomically, in UTF-8; see `replacing`. An OSError names the file, even if the disk is full."""
    try:
        with replacing(path, parents=parents) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on the folder across processes, if the platform supports it."""
    if sys.platform == "win32" or not folder.is_dir():
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# JSON from outside: whatever is wrong with it is a ValueError, and objects become frozen dataclasses by type.
#
# Python's own parser accepts what fails later and elsewhere: lone surrogates, which can't be encoded, `true` instead of
# a number, an object instead of a text.

T = TypeVar("T")
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def parse(text: str) -> Any:
    """Parse JSON.

    Raises JSONDecodeError if the text is not JSON, and another ValueError if it is nested too deeply or contains a lone
    surrogate.
    """
    try:
        value = json.loads(text)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"it contains a lone surrogate (\\u{ord(error.object[error.start]):04x})") from None


def canonical(value: "DataclassInstance", indent: int = 1) -> str:
    """Return a dataclass as JSON with sorted keys, so that equal values have equal bytes."""
    return json.dumps(asdict(value), indent=indent, sort_keys=True, ensure_ascii=False) + "\n"


def build(cls: type[T], data: Any) -> T:
    """Build a dataclass whose fields are texts, numbers, such dataclasses, and tuples and mappings of these.

    Raises TypeError, which names the key, for a wrong type and for an unknown or missing key; and what the class itself
    raises.
    """
    if not isinstance(data, dict):
        raise TypeError(f"{cls.__name__} must be an object, not {_name(data)}")
    kinds, needed = _fields(cast(Any, cls))
    unknown = sorted(set(data) - kinds.keys())
    if unknown:
        raise TypeError(f"unknown key {unknown[0]!r}")
    missing = sorted(needed - set(data))
    if missing:
        raise TypeError(f"{missing[0]!r} is missing")
    return cls(**{key: _value(kinds[key], value, key) for key, value in data.items()})


@cache
def _fields(cls: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the type of each field, and the fields that have no default."""
    hints = get_type_hints(cls)
    needed = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    return {f.name: hints[f.name] for f in fields(cls)}, frozenset(needed)


def _value(kind: Any, value: Any, key: str) -> Any:
    # Most values; checked first, since a hub has thousands of manifests.
    if kind is Any or kind is type(value):
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return None if value is None else _value(inner[0], value, key)
    if is_dataclass(kind):
        return build(kind, value)  # type: ignore[arg-type] # a class, since it is an annotation
    if origin is Literal:
        if not isinstance(value, str) or value not in inner:
            raise TypeError(f"{key} is {str(value)[:40]!r}, but must be one of {', '.join(inner)}")
        return value
    if origin is tuple:
        return tuple(_value(inner[0], item, key) for item in _of(list, value, key))
    if origin is Mapping:
        return {name: _value(inner[1], item, name) for name, item in _of(dict, value, key).items()}
    return _of(kind, value, key)


def _of(kind: type, value: Any, key: str) -> Any:
    """Return `value` if it has exactly this type; a whole number counts as a number, true does not."""
    if kind is float and type(value) is int:
        try:
            float(value)
        except OverflowError:
            raise TypeError(f"{key} is {str(value)[:40]}, which is too large for a number") from None
        return value
    if type(value) is not kind:
        raise TypeError(f"{key} must be {NAMES.get(kind, kind.__name__)}, not {_name(value)}")
    return value


def _name(value: Any) -> str:
    """Describe a value for a message: a plain value in JSON, any other by its type."""
    if isinstance(value, list | dict):
        return NAMES[type(value)]
    return json.dumps(value, ensure_ascii=False)[:40]


Row = dict[str, Any]
TABLES = {".csv": ",", ".tsv": "\t"}


def read_rows(path: Path, name: str, remedy: str = "") -> Iterator[tuple[str, Row]]:
    """Yield each row and its place for messages ("records r.jsonl, line 3"); blank lines are skipped.

    A .csv or .tsv file has a header of columns and one row per line, any other file one JSON object per line; both may
    be compressed (.gz). `name`: of the file in messages. Raises UsageError, which names file and line.
    """
    with reading(path, name, remedy):
        if suffix(path) not in TABLES:
            with opened(path) as stream:
                for number, line in enumerate(stream, 1):
                    if line.strip(b"\xef\xbb\xbf \t\r\n"):
                        where = f"{name} {path}, line {number}"
                        yield where, _object(line, where)
            return
        with io.TextIOWrapper(opened(path), encoding="utf-8-sig", newline="") as text:
            table = csv.DictReader(text, strict=True, delimiter=TABLES[suffix(path)])
            try:
                for row in table:
                    where = f"{name} {path}, line {table.line_num}"
                    yield where, {key: value for key, value in row.items() if key is not None}
            except csv.Error as error:
                raise UsageError(
                    f"{name} {path}, line {table.line_num + 1}: not {suffix(path)[1:].upper()}: {error}"
                ) from error


def suffix(path: Path) -> str:
    """Return the lower-case suffix of a file's name without .gz: ".jsonl" of "dev.JSONL.gz"."""
    ending = path.suffix.lower()
    return Path(path.stem).suffix.lower() if ending == ".gz" else ending


def opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Open a file for reading bytes, decompressed if its name ends in .gz."""
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


@contextmanager
def reading(path: Path, name: str, remedy: str = "") -> Iterator[None]:
    """Raise UsageError for a file that can't be opened or decompressed, or is not UTF-8 text."""
    remedy = f": {remedy}" if remedy else ""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{name} {path} is not a complete gzip file: {error}{remedy}") from error
    except OSError as error:
        raise UsageError(f"{name} {path} can't be read: {error.strerror or error}{remedy}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} {path}: not UTF-8 text{remedy}") from error


def earlier_rows(output: Path, rows: Iterable[Row], resume: bool, added: Set[str]) -> Iterator[Row]:
    """Yield the rows of an earlier run in `output`, while checking them against `rows`; a partial last line is removed.

    added  the keys that a run adds to a row, or overwrites

    Raises UsageError if there are such rows without `resume`, or if they don't match `rows`.
    """
    if not output.exists() or not output.stat().st_size:
        return
    if not resume:
        raise UsageError(
            f"--output {output} already exists: add --resume to continue it, or choose another file"
        )
    inputs, whole = iter(rows), 0
    with output.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                os.truncate(output, whole)
                return
            row, source = _object(line, f"--output {output}, line {number}"), next(inputs, None)
            belongs = source is not None and not added.isdisjoint(row)
            for key, value in (source or {}).items():
                # Compared as text, since NaN does not equal itself.
                if key not in added and (key not in row or json.dumps(row[key]) != json.dumps(value)):
                    belongs = False
            if not belongs:
                raise UsageError(
                    f"--output {output}, line {number} does not match the input, which has changed: "
                    "choose another --output"
                )
            whole += len(line)
            yield row


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Append rows to a file, which is created if missing, and sync it to disk."""
    try:
        stream = path.open("ab")
    except OSError as error:
        raise UsageError(f"--output {path} can't be written: {error.strerror or error}") from error
    with stream:
        try:
            stream.write(
                b"".join(map(json_line, rows))
            )  # in one piece, so that an interruption splits no row
            stream.flush()
            os.fsync(stream.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def json_line(row: Row) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


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
