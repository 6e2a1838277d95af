"""Versions as folders: verified when they are read, whole or not there."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kcard.errors import DamagedCard, HubError, UsageError
from kcard.hub.registry import Hub
from kcard.manifest import Manifest, check_files, seal


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """A sealed card folder with a file in a folder of its own."""
    folder = tmp_path / "draft"
    (folder / "extra").mkdir(parents=True)
    save_file({"weight": np.arange(64, dtype=np.float32)}, folder / "model.safetensors")
    (folder / "extra" / "config.json").write_text("{}", encoding="utf-8")
    seal(folder, Manifest(name="oncology", description="Tumours"))
    return folder


@pytest.fixture
def hub(home: Path, draft: Path) -> Hub:
    hub = Hub(home)
    hub.publish(draft)
    return hub


def flip(path: Path) -> None:
    """Change one bit of a file, the way a failing disk does: in place."""
    path.chmod(0o644)
    with path.open("r+b") as stream:
        stream.seek(-1, 2)
        byte = stream.read(1)[0]
        stream.seek(-1, 2)
        stream.write(bytes([byte ^ 1]))


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_snapshot_has_exactly_the_published_files(hub: Hub, draft: Path) -> None:
    folder = hub.folder("oncology")
    assert contents(folder) == contents(draft)
    assert load_file(folder / "model.safetensors")["weight"][63] == 63
    assert hub.folder("oncology@v1") == folder


def test_a_snapshot_takes_no_second_place_on_the_disk(hub: Hub) -> None:
    folder = hub.folder("oncology")
    sha256 = hub.get("oncology").files["model.safetensors"]
    assert (folder / "model.safetensors").samefile(hub.home / "hub" / "blobs" / sha256[:2] / sha256)


def test_a_damaged_blob_is_noticed_before_anything_is_read_from_it(hub: Hub, tmp_path: Path) -> None:
    folder = hub.folder("oncology")
    flip(folder / "model.safetensors")
    with pytest.raises(DamagedCard, match=r"oncology@v1: model\.safetensors is damaged.*kcard verify"):
        hub.folder("oncology")
    with pytest.raises(DamagedCard, match=r"model\.safetensors"):
        hub.pull("oncology", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_file_is_read_without_the_others(hub: Hub, draft: Path) -> None:
    with hub.open("oncology@v1", "extra/config.json") as stream:
        assert stream.read() == (draft / "extra" / "config.json").read_bytes()
    assert not (hub.home / "hub" / "snapshots").exists()
    with pytest.raises(
        HubError, match=r"'exam\.json' not found in card oncology@v1, which has .*model\.safetensors"
    ):
        hub.open("oncology", "exam.json")
    sha256 = hub.get("oncology").files["model.safetensors"]
    flip(hub.home / "hub" / "blobs" / sha256[:2] / sha256)
    with pytest.raises(DamagedCard, match=r"model\.safetensors is missing or damaged"):
        hub.open("oncology", "model.safetensors")


def test_a_snapshot_that_was_meddled_with_is_made_anew(hub: Hub, draft: Path) -> None:
    folder = hub.folder("oncology")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert contents(hub.folder("oncology")) == contents(draft)
    (folder / "adapter_config.json").write_text("{}", encoding="utf-8")  # would change what is loaded
    assert contents(hub.folder("oncology")) == contents(draft)


def test_a_pulled_card_is_the_callers_own(hub: Hub, draft: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for destination in (tmp_path / "new" / "place", tmp_path / "empty"):
        pulled = hub.pull("oncology", destination)
        assert pulled == destination
        check_files(pulled, Manifest.read(pulled))
        assert contents(pulled) == contents(draft)
        (pulled / "model.safetensors").write_bytes(b"changed")
    assert hub.verify() == []
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["place"]


def test_a_pull_overwrites_nothing(hub: Hub, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine", encoding="utf-8")
    for destination in (full, full / "mine.txt"):
        with pytest.raises(UsageError, match="not an empty folder"):
            hub.pull("oncology", destination)
    assert contents(full) == {"mine.txt": b"mine"}


def test_a_place_that_cant_be_written_is_one_clear_error(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(HubError, match=r"can't pull oncology@v1: .*file"):
        hub.pull("oncology", tmp_path / "file" / "below")
