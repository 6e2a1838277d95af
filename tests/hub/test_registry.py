"""Publishing, finding, laying out and removing versions."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from kcard.errors import CardError, DamagedCard, HubError, UnknownCard, UsageError
from kcard.hub.registry import Hub
from kcard.manifest import Base, Manifest, check_files, seal
from tests.hub.stand import seal_card


def card(folder: Path, name: str = "oncology", weight: float = 0.0, **fields: Any) -> Path:
    """A sealed card folder; equal weights make equal model files."""
    files = {"model.safetensors": save({"weight": np.full((8, 8), weight, dtype=np.float32)})}
    files["config.json"] = b'{"model_type": "opt"}'
    return seal_card(folder, name, files=files, **{"description": "Tumours and their therapies", **fields})


def stored(hub: Hub) -> list[Path]:
    return sorted((hub.home / "hub" / "blobs").glob("*/*"))


@pytest.fixture
def hub(home: Path) -> Hub:
    return Hub(home)


def test_a_published_card_is_found_with_all_that_its_manifest_says(hub: Hub, tmp_path: Path) -> None:
    folder = card(tmp_path / "a", domain="biomedical/oncology", base=Base(name="facebook/opt-1.3b"))
    before = datetime.now(UTC)
    version = hub.publish(folder)
    assert hub.get("oncology") == version
    assert version.reference == "oncology@v1"
    assert version.manifest == Manifest.read(folder)
    assert version.size == sum(path.stat().st_size for path in folder.iterdir())
    assert before <= version.published <= before + timedelta(minutes=1)


def test_a_changed_card_is_a_new_version_and_the_old_one_stays_as_it_was(hub: Hub, tmp_path: Path) -> None:
    first = hub.publish(card(tmp_path / "a", weight=1))
    second = hub.publish(card(tmp_path / "a", weight=2))
    assert [v.number for v in hub.versions("oncology")] == [1, 2]
    assert hub.get("oncology") == second
    assert hub.get("oncology@v1") == first
    assert hub.verify() == []


def test_a_file_of_many_versions_is_stored_once_and_read_only(hub: Hub, tmp_path: Path) -> None:
    hub.publish(card(tmp_path / "a", weight=1))
    assert len(stored(hub)) == 3
    hub.publish(card(tmp_path / "a", name="cardiology", weight=1))
    assert len(stored(hub)) == 4  # only the manifest is new
    assert {path.stat().st_mode & 0o777 for path in stored(hub)} == {0o444}


def test_only_the_files_that_the_manifest_names_are_published(hub: Hub, tmp_path: Path) -> None:
    folder = card(tmp_path / "a")
    (folder / "notes.txt").write_text("private", encoding="utf-8")
    assert set(hub.publish(folder).files) == {"config.json", "model.safetensors", "kcard.json"}
    assert len(stored(hub)) == 3


def test_references_name_versions_by_number_alias_and_sha256(hub: Hub, tmp_path: Path) -> None:
    first = hub.publish(card(tmp_path / "a", weight=1), aliases=["stable", "paper"])
    second = hub.publish(card(tmp_path / "a", weight=2), aliases=["stable"])
    assert hub.get("oncology@stable").number == 2
    assert hub.get("oncology@paper").number == 1
    assert hub.get(f"oncology@{first.sha256[:6]}").number == 1
    assert hub.get(f"oncology@{second.sha256}").number == 2
    assert [v.aliases for v in hub.versions("oncology")] == [("paper",), ("stable",)]


@pytest.mark.parametrize("alias", ["v2", "decade", "has space", "", "UPPER"])
def test_an_alias_that_could_be_taken_for_something_else_is_refused(
    hub: Hub, tmp_path: Path, alias: str
) -> None:
    with pytest.raises(UsageError, match="alias"):
        hub.publish(card(tmp_path / "a"), aliases=[alias])
    assert hub.list() == []


def test_an_unknown_card_names_those_that_are_nearly_called_so(hub: Hub, tmp_path: Path) -> None:
    assert hub.list() == hub.verify() == []
    with pytest.raises(UnknownCard, match="no card is published yet"):
        hub.get("oncology")
    with pytest.raises(HubError, match="kcard ask --corpus FOLDER"):
        hub.resolve(None)
    hub.publish(card(tmp_path / "a"), aliases=["stable"])
    with pytest.raises(UnknownCard, match=r"'oncolgy': did you mean oncology\?"):
        hub.get("oncolgy")
    with pytest.raises(UnknownCard, match="kcard cards list"):
        hub.get("zzz")
    with pytest.raises(UnknownCard, match=r"'v2': it has v1 \(stable\)"):
        hub.get("oncology@v2")
    with pytest.raises(UsageError, match="CARD@v2"):
        hub.get("oncology@")


def test_a_listing_shows_the_newest_version_of_what_is_asked_for(hub: Hub, tmp_path: Path) -> None:
    opt = Base(name="facebook/opt-1.3b")
    hub.publish(card(tmp_path / "a", "tumours", domain="biomedical/oncology", base=opt))
    hub.publish(card(tmp_path / "b", "hearts", domain="biomedical", description="Das Herz, ÄRZTLICH besehen"))
    hub.publish(card(tmp_path / "c", "decoy", domain="biomedicalx"))
    hub.publish(card(tmp_path / "c", "decoy", domain="biomedicalx", weight=2))

    def names(**filters: str) -> list[str]:
        return [v.reference for v in hub.list(**filters)]

    assert names() == ["decoy@v2", "hearts@v1", "tumours@v1"]
    assert names(domain="biomedical") == names(domain="biomedical/") == ["hearts@v1", "tumours@v1"]
    assert names(domain="biomedical/oncology") == ["tumours@v1"]
    assert names(text="ärztlich HERZ") == ["hearts@v1"]
    assert names(text="therapies oncology") == ["tumours@v1"]
    assert names(base="opt-1.3b") == names(base="facebook/opt-1.3b") == ["tumours@v1"]
    assert names(base="") == ["decoy@v2", "hearts@v1"]
    assert names(text="100%") == names(base="t_1.3b") == []


def test_a_selection_takes_references_and_domain_subtrees_without_repeats(hub: Hub, tmp_path: Path) -> None:
    hub.publish(card(tmp_path / "a", "tumours", domain="biomedical/oncology"))
    hub.publish(card(tmp_path / "a", "tumours", domain="biomedical/oncology", weight=2))
    hub.publish(card(tmp_path / "b", "hearts", domain="biomedical"))
    hub.publish(card(tmp_path / "c", "senate", domain="politics"))

    def names(selection: list[str] | None) -> list[str]:
        return [v.reference for v in hub.resolve(selection)]

    assert names(None) == ["hearts@v1", "senate@v1", "tumours@v2"]
    assert names(["senate", "biomedical/", "hearts"]) == ["senate@v1", "hearts@v1", "tumours@v2"]
    assert names(["tumours@v1"]) == ["tumours@v1"]
    with pytest.raises(UsageError, match="tumours@v1 and tumours@v2"):
        hub.resolve(["tumours@v1", "biomedical/"])
    with pytest.raises(UnknownCard, match="'law/'"):
        hub.resolve(["law/"])
    with pytest.raises(UnknownCard):
        hub.resolve([])


def test_removing_a_version_keeps_the_files_that_others_share(hub: Hub, tmp_path: Path) -> None:
    first = hub.publish(card(tmp_path / "a", weight=1), aliases=["stable"])
    hub.publish(card(tmp_path / "a", weight=2), aliases=["next"])
    snapshot = hub.folder("oncology@v1")
    assert [v.reference for v in hub.remove("oncology@v1")] == ["oncology@v1"]
    assert not snapshot.exists()
    assert len(stored(hub)) == 3
    assert hub.verify() == []
    assert hub.folder("oncology@next").is_dir()
    for gone in ("oncology@v1", "oncology@stable", f"oncology@{first.sha256}"):
        with pytest.raises(UnknownCard):
            hub.get(gone)
    hub.remove("oncology@v2")
    assert hub.publish(card(tmp_path / "a", weight=3)).number == 3  # no number is given again


def test_removing_a_card_removes_all_its_versions_and_only_them(hub: Hub, tmp_path: Path) -> None:
    hub.publish(card(tmp_path / "a", weight=1))
    hub.publish(card(tmp_path / "a", weight=2))
    hub.publish(card(tmp_path / "b", "hearts", weight=2))
    assert len(hub.remove("oncology")) == 2
    assert [v.name for v in hub.list()] == ["hearts"]
    assert len(stored(hub)) == 3
    hub.remove("hearts")
    assert stored(hub) == []
    with pytest.raises(UnknownCard):
        hub.remove("hearts")


def test_safetensors_whose_header_begins_like_a_pickle_are_accepted(hub: Hub, tmp_path: Path) -> None:
    folder = card(tmp_path / "a")
    header = b'{"__metadata__":{"note":"'
    path = folder / "model.safetensors"
    path.write_bytes((0x0480).to_bytes(8, "little") + header + b"x" * (0x0480 - len(header) - 3) + b'"}}')
    assert path.read_bytes()[:2] == b"\x80\x04"
    seal(folder, Manifest.read(folder))
    assert hub.publish(folder).number == 1


def test_a_manifest_that_names_a_file_outside_its_folder_is_refused(hub: Hub, tmp_path: Path) -> None:
    folder = card(tmp_path / "a")
    data = json.loads((folder / "kcard.json").read_text(encoding="utf-8"))
    outside = ("../outside.txt", "/etc/hostname", "a/../../outside.txt", "a\\..\\b", "C:x", "")
    attacks = [({path: "0" * 64}, "plain path") for path in outside]
    for files, message in [*attacks, ({"config.json": "../../escape"}, "no sha256")]:
        (folder / "kcard.json").write_text(json.dumps({**data, "files": files}), encoding="utf-8")
        with pytest.raises(CardError, match=message):
            hub.publish(folder)


def test_a_folder_that_is_not_as_sealed_is_not_published(hub: Hub, tmp_path: Path) -> None:
    folder = card(tmp_path / "a")
    (folder / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DamagedCard, match=r"config\.json"):
        hub.publish(folder)
    (folder / "kcard.json").unlink()
    with pytest.raises(CardError, match=r"no kcard\.json"):
        hub.publish(folder)
    assert hub.list() == []


def test_verify_names_every_missing_and_damaged_file_and_publishing_again_mends_them(
    hub: Hub, tmp_path: Path
) -> None:
    folder = card(tmp_path / "a")
    version = hub.publish(folder)
    hub.publish(card(tmp_path / "b", "hearts", weight=3))
    config, model = (hub.home / "hub/blobs" / s[:2] / s for s in sorted(version.manifest.files.values()))
    if version.files["config.json"] != config.name:
        config, model = model, config
    damage(model)
    config.unlink()
    problems = {(p.card, p.version, p.path, p.what.split(":")[0]) for p in hub.verify()}
    assert problems == {
        ("oncology", 1, "config.json", "missing"),
        ("hearts", 1, "config.json", "missing"),
        ("oncology", 1, "model.safetensors", "damaged"),
    }
    assert {p.card for p in hub.verify("hearts")} == {"hearts"}
    assert hub.publish(folder) == version
    assert hub.verify() == []


def damage(path: Path) -> None:
    """Change one bit of a file, the way a failing disk does: in place."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


# Versions as folders: verified when they are read, whole or not there.


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """A sealed card folder with a file in a folder of its own."""
    files = {"model.safetensors": save({"weight": np.arange(64, dtype=np.float32)})}
    return seal_card(tmp_path / "draft", "oncology", files=files | {"extra/config.json": b"{}"})


@pytest.fixture
def filled(home: Path, draft: Path) -> Hub:
    filled = Hub(home)
    filled.publish(draft)
    return filled


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_snapshot_has_exactly_the_published_files(filled: Hub, draft: Path) -> None:
    folder = filled.folder("oncology")
    assert contents(folder) == contents(draft)
    assert load_file(folder / "model.safetensors")["weight"][63] == 63
    assert filled.folder("oncology@v1") == folder
    sha256 = filled.get("oncology").files["model.safetensors"]  # which takes no second place on the disk
    assert (folder / "model.safetensors").samefile(filled.home / "hub" / "blobs" / sha256[:2] / sha256)


def test_a_damaged_blob_is_noticed_before_anything_is_read_from_it(filled: Hub, tmp_path: Path) -> None:
    folder = filled.folder("oncology")
    damage(folder / "model.safetensors")
    with pytest.raises(DamagedCard, match=r"oncology@v1: model\.safetensors is damaged.*kcard verify"):
        filled.folder("oncology")
    with pytest.raises(DamagedCard, match=r"model\.safetensors"):
        filled.pull("oncology", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_file_is_read_without_the_others(filled: Hub, draft: Path) -> None:
    with filled.open("oncology@v1", "extra/config.json") as stream:
        assert stream.read() == (draft / "extra" / "config.json").read_bytes()
    assert not (filled.home / "hub" / "snapshots").exists()
    with pytest.raises(
        HubError, match=r"'exam\.json' not found in card oncology@v1, which has .*model\.safetensors"
    ):
        filled.open("oncology", "exam.json")
    sha256 = filled.get("oncology").files["model.safetensors"]
    damage(filled.home / "hub" / "blobs" / sha256[:2] / sha256)
    with pytest.raises(DamagedCard, match=r"model\.safetensors is damaged"):
        filled.open("oncology", "model.safetensors")


def test_a_snapshot_that_was_meddled_with_is_made_anew(filled: Hub, draft: Path) -> None:
    folder = filled.folder("oncology")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert contents(filled.folder("oncology")) == contents(draft)
    (folder / "adapter_config.json").write_text("{}", encoding="utf-8")  # would change what is loaded
    assert contents(filled.folder("oncology")) == contents(draft)


def test_a_pulled_card_is_the_callers_own(filled: Hub, draft: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for destination in (tmp_path / "new" / "place", tmp_path / "empty"):
        pulled = filled.pull("oncology", destination)
        assert pulled == destination
        check_files(pulled, Manifest.read(pulled))
        assert contents(pulled) == contents(draft)
        (pulled / "model.safetensors").write_bytes(b"changed")
    assert filled.verify() == []
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["place"]


def test_a_pull_overwrites_nothing(filled: Hub, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine", encoding="utf-8")
    for destination in (full, full / "mine.txt"):
        with pytest.raises(UsageError, match="not an empty folder"):
            filled.pull("oncology", destination)
    with pytest.raises(HubError, match=r"can't pull oncology@v1: .*mine\.txt"):
        filled.pull("oncology", full / "mine.txt" / "below")
    assert contents(full) == {"mine.txt": b"mine"}
