"""Blobs in any fsspec store: s3://bucket/folder, gs://…, file://….

Object stores write an object atomically. In other stores, a blob is written to a temporary name and moved.
"""

import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kcard.errors import DamagedCard, HubError, KcardError, MissingExtra, Unavailable, UsageError
from kcard.hub.storage import Blobs, describe_mismatch, is_digest

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


BLOCK_BYTES = 2 << 20  # bytes of one request
ATOMIC = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci"}
PARTIAL_PREFIX = ".partial-"
STALE_SECONDS = 24 * 3600
PACKAGES = {"s3": "s3fs: pip install 'kcard[s3]'", "s3a": "s3fs: pip install 'kcard[s3]'"}


class ObjectStore(Blobs):
    """Blobs at `root`/ab/abcdef… of a store; `partial` is a local folder. `ObjectStore.at` opens one."""

    def __init__(self, url: str, root: str, partial: Path, files: "AbstractFileSystem") -> None:
        self._url, self.root, self.partial = url, root, partial
        self._opened, self._process = files, os.getpid()

    @classmethod
    def at(cls, url: str, partial: Path) -> "ObjectStore":
        """Open the store at an fsspec URL. Raises UsageError for an invalid URL, MissingExtra for a missing package."""
        files, root = _open_file_system(url)
        return cls(url, root.rstrip("/"), partial, files)

    def __reduce__(self) -> tuple[object, tuple[str, Path]]:
        return ObjectStore.at, (self._url, self.partial)  # another process opens its own connections

    @property
    def _files(self) -> Any:
        if self._process != os.getpid():  # its event loop stayed in the parent
            self._opened, self._process = _open_file_system(self._url)[0], os.getpid()
        return self._opened

    def path(self, sha256: str) -> str:
        """Return the path of a blob in the store, whether or not it exists."""
        return f"{self.root}/{sha256[:2]}/{sha256}"

    def where(self, sha256: str | None = None) -> str:
        return str(self._files.unstrip_protocol(self.root if sha256 is None else self.path(sha256)))

    def holds(self, sha256: str) -> bool:
        return self._size(sha256) is not None

    def size(self, sha256: str) -> int:
        return self._size(sha256) or 0

    def _size(self, sha256: str) -> int | None:
        with self._explain_errors():
            try:
                return int(self._files.info(self.path(sha256))["size"])
            except FileNotFoundError:
                return None

    def place(self, path: Path, sha256: str, size: int) -> None:
        target = self.path(sha256)
        folder = target.rpartition("/")[0]
        with self._explain_errors():
            if _is_atomic(self._files):
                self._files.put_file(str(path), target)
            else:
                aside = f"{folder}/{PARTIAL_PREFIX}{uuid.uuid4().hex}"
                self._files.makedirs(folder, exist_ok=True)
                self._files.put_file(str(path), aside)
                self._files.mv(aside, target)
        if self._size(sha256) != size:
            raise HubError(f"incomplete upload of {self.where(sha256)}: try again")
        path.unlink()

    def read(self, sha256: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        size = self._size(sha256)
        if size is None:
            raise DamagedCard(f"blob {self.where(sha256)} is missing")
        end = size if stop is None else min(stop, size)

        def read_blocks() -> Iterator[bytes]:
            for first in range(start, end, BLOCK_BYTES):
                with self._explain_errors():
                    try:
                        last = min(first + BLOCK_BYTES, end)
                        block = self._files.cat_file(self.path(sha256), start=first, end=last)
                    except FileNotFoundError:  # deleted concurrently
                        raise DamagedCard(f"blob {self.where(sha256)} is missing") from None
                yield bytes(block)

        return read_blocks()

    def open(self, sha256: str) -> BinaryIO:
        with self._explain_errors():
            try:
                stream: BinaryIO = self._files.open(self.path(sha256), "rb", block_size=BLOCK_BYTES)
            except FileNotFoundError:
                raise DamagedCard(f"blob {self.where(sha256)} is missing") from None
            return stream

    def materialize(self, sha256: str, target: Path) -> None:
        digest = hashlib.sha256()
        with target.open("xb") as stream:
            for block in self.read(sha256):
                digest.update(block)
                stream.write(block)
            stream.flush()
            os.fsync(stream.fileno())
        if digest.hexdigest() != sha256:
            raise DamagedCard(describe_mismatch(digest.hexdigest(), sha256))

    def delete(self, *sha256: str) -> None:
        with self._explain_errors():
            if _is_atomic(self._files):  # one request for all, which ignores missing objects
                self._files.rm([self.path(one) for one in sha256])
                return
            for one in sha256:
                if self._files.exists(self.path(one)):
                    self._files.rm_file(self.path(one))

    def sizes(self) -> Iterator[tuple[str, int]]:
        for name, entry in self._entries():
            if is_digest(name):
                yield name, int(entry["size"])

    def remains(self, delete: bool) -> Iterator[tuple[str, int]]:
        """Yield only what has not changed for a day, since its writer may still be running."""
        for name, entry in self._entries():
            if not name.startswith(PARTIAL_PREFIX):
                continue
            written = entry.get("mtime") or entry.get("LastModified") or entry.get("created")
            if isinstance(written, datetime):
                written = written.timestamp()
            if written is not None and time.time() - float(written) > STALE_SECONDS:
                yield str(self._files.unstrip_protocol(entry["name"])), int(entry["size"])
                if delete:
                    with self._explain_errors():
                        self._files.rm_file(entry["name"])

    def _entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every object's name and info, by folder, since there may be millions."""
        for number in range(256):
            with self._explain_errors():
                try:
                    listed = self._files.ls(f"{self.root}/{number:02x}", detail=True)
                except FileNotFoundError:
                    continue
            by_name = {entry["name"].rpartition("/")[2]: entry for entry in listed}
            yield from sorted(by_name.items())

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except KcardError:
            raise
        except FileNotFoundError:
            raise HubError(
                f"the store {self.where()} does not exist: create it, or correct KCARD_BLOBS_URL"
            ) from None
        except Exception as error:  # each kind of store raises its own library's errors
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise Unavailable(
                f"the store {self.where()} is unavailable: {reason}; try again later"
            ) from error


def _open_file_system(url: str) -> "tuple[AbstractFileSystem, str]":
    from fsspec.core import url_to_fs

    kind, separator, _ = url.partition("://")
    if not separator:
        raise UsageError("invalid store URL: use s3://BUCKET/FOLDER or file:///FOLDER")
    try:
        # A cached listing would miss changes by other processes.
        files, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError:
        raise MissingExtra(f"the store {kind}:// needs {PACKAGES.get(kind, 'its fsspec package')}") from None
    except ValueError:
        raise UsageError(
            f"unknown store {kind}://: use one that fsspec supports, such as s3://BUCKET/FOLDER"
        ) from None
    return files, str(root)


def _is_atomic(files: Any) -> bool:
    kinds = {files.protocol} if isinstance(files.protocol, str) else {*files.protocol}
    return bool(kinds & ATOMIC)
