"""A server whose disk is full: 507 with a plain message, nothing half-stored, and not ready."""

import errno
import hashlib
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from kcard.hub.server import monitoring
from tests.hub.server.attacks import commit, inline
from tests.hub.shared_hub import Shared, shared_hub

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "none", str(folder)]
    if (
        not sys.platform.startswith("linux")
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("mounting is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as stream:
        while stream.write(b"x" * 4096):
            pass


def large(shared: Shared, content: bytes) -> httpx.Response:
    """An upload by LFS."""
    oid = hashlib.sha256(content).hexdigest()
    batch = {"operation": "upload", "objects": [{"oid": oid, "size": len(content)}]}
    answer = shared.http("bob").post("/bob/card.git/info/lfs/objects/batch", json=batch)
    if answer.status_code != 200:
        return answer
    upload = answer.json()["objects"][0]["actions"]["upload"]["href"]
    return shared.http().put(upload, content=content)


def test_a_full_disk_is_a_507_until_there_is_room_again(disk: Path) -> None:
    with shared_hub(disk) as shared:
        shared.create("bob/card")
        head = shared.hub.repositories.get("model", "bob/card").head
        fill(disk)
        text = b"text " * 40_000
        answers = {
            "commit": commit(shared, "bob", "bob/card", inline("a.txt", text)),
            "lfs": large(shared, text),
            "create": shared.http("bob").post("/api/repos/create", json={"name": "other"}),
        }
        for what, answer in answers.items():
            if what == "create" and answer.status_code == 200:
                continue  # it fitted into what the database has left
            assert answer.status_code == 507, (what, answer.text)
            assert "disk is full" in answer.json()["error"]
            assert str(disk) not in answer.text
        ready = shared.http().get("/readyz")
        assert ready.status_code == 503
        assert "MB free" in ready.json()["disk"]
        assert shared.http().get("/api/models/bob/card").json()["sha"] == head
        (disk / "ballast").unlink()
        assert commit(shared, "bob", "bob/card", inline("a.txt", text)).status_code == 200
        assert shared.hub.registry.gc() == []
        shared.hub.database.close()


def test_little_room_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared_hub(tmp_path) as shared:
        least = monitoring.LEAST_FREE
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(10**12, 0, least))
        assert shared.http().get("/readyz").json()["disk"] == "ok"
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(10**12, 0, least - 1))
        answer = shared.http().get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["disk"] == "99 MB free: at least 100 MB are needed"
        assert shared.http().get("/healthz").status_code == 200


def test_a_file_that_can_not_be_written_outside_of_an_upload_is_a_507_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "secret"))

    with shared_hub(tmp_path) as shared:
        monkeypatch.setattr(type(shared.hub.repositories), "place_attributes", full)
        answer = shared.http("bob").post("/api/repos/create", json={"name": "card"})
        assert answer.status_code == 507
        assert "secret" not in answer.text + str(answer.headers)
        monkeypatch.undo()
        assert shared.http("bob").post("/api/repos/create", json={"name": "card"}).status_code == 200
