"""Blobs: one per content, whole or absent, never silently changed."""

import errno
import hashlib
import os
import time
from pathlib import Path

import pytest

from kcard.errors import DamagedCard
from kcard.hub.storage import BlobStore, partial_folder, sweep

TEXT = b"Rosenberg was elected in 2022."
SHA256 = hashlib.sha256(TEXT).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", tmp_path / "partial")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_bytes(TEXT)
    return path


def test_a_blob_lies_under_its_sha256_and_reads_back(store: BlobStore, source: Path) -> None:
    blob = store.put(source, SHA256)
    assert (blob.sha256, blob.size) == (SHA256, len(TEXT))
    assert store.path(SHA256) == store.root / SHA256[:2] / SHA256
    with store.open(SHA256) as stream:
        assert stream.read() == TEXT
    assert list(store) == [SHA256]


def test_putting_a_blob_twice_leaves_the_first_one_untouched(store: BlobStore, source: Path) -> None:
    store.put(source, SHA256)
    first = store.path(SHA256).stat()
    store.put(source, SHA256)
    second = store.path(SHA256).stat()
    assert (first.st_ino, first.st_mtime_ns) == (second.st_ino, second.st_mtime_ns)


def test_a_damaged_blob_is_not_opened_and_is_replaced_when_put_again(store: BlobStore, source: Path) -> None:
    store.put(source, SHA256)
    store.path(SHA256).chmod(0o644)
    store.path(SHA256).write_bytes(TEXT.replace(b"2022", b"2020"))
    assert str(store.find_fault(SHA256)).startswith("damaged")
    with pytest.raises(DamagedCard, match="damaged"):
        store.open_verified(SHA256)
    store.put(source, SHA256)
    assert store.find_fault(SHA256) is None


def test_a_missing_blob_is_said_to_be_missing(store: BlobStore) -> None:
    assert store.find_fault(SHA256) == "missing"
    assert not store.holds(SHA256)
    with pytest.raises(DamagedCard, match="missing"):
        store.open_verified(SHA256)
    store.delete(SHA256)


def test_a_file_that_is_not_what_was_announced_leaves_nothing_behind(store: BlobStore, source: Path) -> None:
    with pytest.raises(DamagedCard, match="was changed"):
        store.put(source, "0" * 64)
    assert list(store) == []
    assert list(store.partial.iterdir()) == []


def test_without_locks_what_nobody_changed_for_a_day_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_handle: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")  # as on some network file systems

    monkeypatch.setattr("fcntl.flock", refuse)
    with partial_folder(tmp_path / "partial") as young:
        old = tmp_path / "partial" / "old"
        old.mkdir()
        (old / "blob").write_bytes(b"half")
        yesterday = time.time() - 25 * 3600
        os.utime(old, (yesterday, yesterday))
        sweep(tmp_path / "partial")
        assert young.is_dir()
        assert not old.exists()
    assert not young.exists()
