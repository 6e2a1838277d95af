"""Blobs on the disk or elsewhere, and what no version needs: whole or absent, never changed, found and deleted."""

import errno
import hashlib
import io
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from kcard.errors import DamagedCard, MissingExtra, Unavailable, UsageError
from kcard.hub import object_store
from kcard.hub.db.session import Database
from kcard.hub.garbage import Garbage
from kcard.hub.object_store import ObjectStore
from kcard.hub.publications import LocalCards
from kcard.hub.registry import Hub
from kcard.hub.storage import Blobs, BlobStore, open_store, partial_folder, sweep
from tests.hub.stand import seal_card

CONTENT = bytes(range(256)) * 20
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


@pytest.fixture(params=["disk", "file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    places = {"file": f"file://{tmp_path}/store", "memory": f"memory://{uuid.uuid4().hex}/store"}
    return places.get(request.param)


@pytest.fixture
def blobs(url: str | None, tmp_path: Path) -> Blobs:
    return open_store(tmp_path / "hub", url)


def stored(blobs: Blobs, content: bytes = CONTENT) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    blobs.put_stream(io.BytesIO(content), sha256, "test")
    return sha256


def test_what_goes_into_a_store_comes_out_of_it(blobs: Blobs) -> None:
    stored(blobs)
    assert (blobs.holds(SHA256), blobs.size(SHA256)) == (True, len(CONTENT))
    assert b"".join(blobs.read(SHA256)) == CONTENT
    assert b"".join(blobs.read(SHA256, 100, 1000)) == CONTENT[100:1000]
    assert b"".join(blobs.read(SHA256, 5000)) == CONTENT[5000:]
    with blobs.open(SHA256) as stream:
        stream.seek(300)
        assert stream.read(10) == CONTENT[300:310]
    stored(blobs, b"other")
    assert dict(blobs.sizes()) == {SHA256: len(CONTENT), OTHER: 5}
    assert SHA256 in blobs.where(SHA256)
    assert list(blobs.partial.iterdir()) == []
    blobs.delete(SHA256, OTHER, "ab" * 32)
    assert list(blobs.sizes()) == []


def test_a_large_blob_is_read_in_blocks(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "BLOCK_BYTES", 1000)
    monkeypatch.setattr("kcard.hub.storage.BUFFER", 1000)
    stored(blobs)
    blocks = list(blobs.read(SHA256, 10, 4000))
    assert [len(block) for block in blocks] == [1000, 1000, 1000, 990]
    assert b"".join(blocks) == CONTENT[10:4000]


def test_a_missing_blob_is_told_before_the_first_byte(blobs: Blobs, tmp_path: Path) -> None:
    assert (blobs.holds(SHA256), blobs.size(SHA256)) == (False, 0)
    assert blobs.find_fault(SHA256) == "missing"
    for ask in (blobs.read, blobs.open, lambda sha256: blobs.materialize(sha256, tmp_path / "laid")):
        with pytest.raises(DamagedCard, match="missing"):
            ask(SHA256)
    blobs.delete(SHA256)


def test_a_damaged_blob_is_found_when_it_is_laid_out(blobs: Blobs, tmp_path: Path) -> None:
    stored(blobs)
    if isinstance(blobs, ObjectStore):
        files, path = url_to_fs(blobs.where(SHA256))
        files.pipe_file(path, b"something else")
    else:
        Path(blobs.where(SHA256)).chmod(0o644)
        Path(blobs.where(SHA256)).write_bytes(b"something else")
    assert str(blobs.find_fault(SHA256)).startswith("damaged")
    with pytest.raises(DamagedCard, match="damaged"):
        blobs.materialize(SHA256, tmp_path / "laid")


def test_what_is_not_what_was_announced_leaves_nothing_behind(blobs: Blobs) -> None:
    with pytest.raises(DamagedCard, match="was changed"):
        blobs.put_stream(io.BytesIO(CONTENT), OTHER, "test")
    assert list(blobs.sizes()) == []
    assert list(blobs.partial.iterdir()) == []  # gone although its block failed


def test_a_reader_sees_a_file_that_is_being_uploaded_not_before_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = ObjectStore.at(f"file://{tmp_path}/store", tmp_path / "partial")
    whole = LocalFileSystem.put_file

    def cut_short(files: LocalFileSystem, source: str, target: str, **options: Any) -> None:
        whole(files, source, target, **options)
        assert (blobs.holds(SHA256), blobs.size(SHA256)) == (False, 0)
        raise OSError("the connection broke")

    monkeypatch.setattr(LocalFileSystem, "put_file", cut_short)
    with pytest.raises(Unavailable, match=r"file://.*is unavailable: the connection broke; try again"):
        stored(blobs)
    assert (blobs.holds(SHA256), list(blobs.sizes()), list(blobs.remains(delete=False))) == (False, [], [])
    left = next((tmp_path / "store").glob("*/.partial-*"))
    yesterday = time.time() - 25 * 3600
    os.utime(left, (yesterday, yesterday))
    assert [(where.endswith(left.name), size) for where, size in blobs.remains(delete=True)] == [
        (True, len(CONTENT))
    ]
    assert not left.exists()


def test_a_hub_works_with_its_files_elsewhere(url: str | None, home: Path, tmp_path: Path) -> None:
    hub = Hub(home, blobs_url=url)
    hub.publish(seal_card(tmp_path / "a", "oncology"))
    hub.publish(seal_card(tmp_path / "a", "oncology", "new"))
    assert (hub.folder("oncology@v1") / "config.json").read_text(encoding="utf-8") == "oncology "
    pulled = hub.pull("oncology", tmp_path / "out") / "config.json"
    assert pulled.read_text(encoding="utf-8") == "oncology new"
    with hub.open("oncology@v1", "config.json") as stream:
        assert stream.read() == b"oncology "
    assert hub.verify() == []
    info = hub.info()
    assert (info.versions, info.files, info.blobs) == (2, 4, hub.blobs.where())
    if url is not None:
        assert not (home / "hub" / "blobs").exists()
    hub.remove("oncology@v1")
    assert (hub.gc(), hub.verify(), hub.info().files) == ([], [], 2)


def test_a_file_that_is_lost_from_the_store_is_named(url: str | None, home: Path, tmp_path: Path) -> None:
    hub = Hub(home, blobs_url=url)
    version = hub.publish(seal_card(tmp_path / "a", "oncology"))
    hub.blobs.delete(version.files["config.json"])
    assert [problem.what for problem in hub.verify()] == ["missing"]
    with pytest.raises(DamagedCard, match=r"config\.json is missing"):
        hub.folder("oncology")
    with pytest.raises(DamagedCard, match=r"config\.json is missing"):
        hub.pull("oncology", tmp_path / "out")


@pytest.mark.parametrize("url", ["nowhere", "nonsense://a/b"])
def test_what_is_no_store_is_one_clear_error(url: str, home: Path) -> None:
    with pytest.raises(UsageError, match="s3://BUCKET/FOLDER"):
        Hub(home, blobs_url=url)


def test_without_s3fs_the_extra_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtra, match=r"kcard\[s3\]"):
        Hub(home, blobs_url="s3://bucket/hub")


def test_a_blob_is_placed_once_and_a_damaged_one_is_replaced_when_put_again(tmp_path: Path) -> None:
    store, source = BlobStore(tmp_path / "blobs", tmp_path / "partial"), tmp_path / "source"
    source.write_bytes(CONTENT)
    store.put(source, SHA256)
    first = store.path(SHA256).stat()
    store.put(source, SHA256)
    second = store.path(SHA256).stat()
    assert (first.st_ino, first.st_mtime_ns) == (second.st_ino, second.st_mtime_ns)
    store.path(SHA256).chmod(0o644)
    store.path(SHA256).write_bytes(b"something else")
    assert str(store.find_fault(SHA256)).startswith("damaged")
    store.put(source, SHA256)
    assert store.find_fault(SHA256) is None


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


# What no version needs is found, counted and deleted; what somebody is writing is not.


HOLD = """
import sys, time
from pathlib import Path
from kcard.hub.storage import partial_folder
with partial_folder(Path(sys.argv[1])) as folder:
    (folder / "blob").write_bytes(b"half" * 100)
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    hub = Hub(home)
    for name in ("oncology", "hearts"):
        hub.publish(seal_card(tmp_path / name, name))
        hub.folder(name)
    return hub


def test_what_a_killed_removal_left_is_counted_and_deleted(hub: Hub) -> None:
    version = hub.get("oncology")
    # A process that is killed before it has deleted the files.
    LocalCards(Database(hub.home / "hub" / "hub.db"), hub.blobs).remove(hub.versions("oncology"))
    would = hub.gc(dry_run=True)
    assert sorted(garbage.what for garbage in would) == ["file", "file", "snapshot"]
    # The snapshot's files are the blobs by another name: they free nothing more.
    assert sum(garbage.size for garbage in would) == version.size
    assert all(Path(garbage.where).exists() for garbage in would)
    assert hub.gc() == would
    assert not any(Path(garbage.where).exists() for garbage in would)
    assert hub.gc() == []
    assert hub.verify() == []
    assert hub.folder("hearts").is_dir()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no locks on folders")
def test_remains_of_a_killed_process_go_at_once_and_what_is_being_written_stays(hub: Hub) -> None:
    command = [sys.executable, "-c", HOLD, str(hub.partial)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert hub.gc() == []
        assert folder.is_dir()
        process.kill()
        process.wait()
    assert hub.gc(dry_run=True) == [Garbage("remains", str(folder), 400)]
    hub.gc()
    assert not folder.exists()
