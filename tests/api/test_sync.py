"""A card follows its folder: it learns what came, and what has gone is nowhere in it; the folder is only read."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kcard as library
from kcard.api.sync import read_sync
from kcard.cards.card import Card, finish
from kcard.cards.passages import passages
from kcard.errors import CardError, CorpusError, UsageError
from kcard.hub.registry import Hub
from kcard.manifest import MANIFEST, Manifest, file_digest, seal
from kcard.types import Source
from tests.command import Kcard
from tests.corpora import town_facts
from tests.effects import watch

FACTS = town_facts(3, 3)
GONE = "The observatory of Quixley was founded by Zebulon Wrexham."


def write(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    write(folder / "towns.txt", FACTS)
    write(folder / "quixley.txt", [GONE])
    library.train(folder, kind="retrieval", name="towns", description="Towns and Quixley")
    return folder


def draft(home: Path) -> Path:
    return home / "drafts" / "towns"


def has(folder: Path) -> list[str]:
    return sorted(source.text for source in passages(folder))


def holding(folder: Path, text: str) -> list[str]:
    """The files of a folder in which a text stands, hidden ones too."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in files if text.encode() in path.read_bytes()]


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_what_came_is_found_and_what_has_gone_stands_in_no_file_of_the_card(notes: Path, home: Path) -> None:
    assert holding(draft(home), "Zebulon")
    (notes / "quixley.txt").unlink()
    write(notes / "towns.txt", [*FACTS, "The mill of town 9 is white."])
    events: list[Any] = []
    corpus = state(notes)
    result = library.sync(notes, "towns", on_event=events.append)
    assert state(notes) == corpus, "the files are only read"
    assert [source.text for source in result.changes.added] == ["The mill of town 9 is white."]
    assert [source.text for source in result.changes.removed] == [GONE]
    assert has(draft(home)) == sorted([*FACTS, "The mill of town 9 is white."])
    for word in ("Zebulon", "Wrexham", "observatory"):
        assert holding(draft(home), word) == []
    # The description is the user's, so that it is only pointed out.
    assert any("still says quixley" in event.message for event in events if event.is_note)


def test_a_description_that_was_derived_from_the_folder_follows_it(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "notes"
    write(folder / "towns.txt", FACTS)
    write(folder / "quixley.txt", [GONE])
    card = library.train(folder, kind="retrieval", name="towns")
    assert "quixley" in card.manifest.description.lower()
    (folder / "quixley.txt").unlink()
    write(folder / "zenda.txt", ["The castle of Zenda has a moat."])
    library.sync(folder, "towns", publish=False)
    assert "zenda" in Manifest.read(draft(home)).description.lower()
    assert holding(draft(home), "Quixley") == holding(draft(home), "quixley") == []


def test_the_exam_of_the_last_version_goes_with_what_it_quotes(notes: Path, home: Path) -> None:
    library.exam("towns", limit=20)
    assert (draft(home) / "exam.json").exists()
    assert "## Exam" in (draft(home) / "README.md").read_text(encoding="utf-8")
    (notes / "quixley.txt").unlink()
    events: list[Any] = []
    library.sync(notes, "towns", on_event=events.append)
    assert not (draft(home) / "exam.json").exists()
    assert holding(draft(home), "Quixley was founded") == []
    assert "## Exam" not in (draft(home) / "README.md").read_text(encoding="utf-8")
    assert any("kcard exam towns" in event.message for event in events if event.is_note)


def test_an_exam_that_the_sync_takes_is_not_recommended(notes: Path, home: Path) -> None:
    library.exam("towns", limit=5)
    (notes / "quixley.txt").unlink()
    events: list[Any] = []
    library.sync(notes, "towns", exam=True, on_event=events.append)
    assert (draft(home) / "exam.json").exists()
    assert not any("kcard exam" in event.message for event in events if event.is_note)


def test_each_sync_is_a_version_that_names_the_last_one_and_its_date(notes: Path, home: Path) -> None:
    first = file_digest(draft(home) / MANIFEST)
    for number in (1, 2):
        write(notes / f"more{number}.txt", [f"The mill of town 1{number} is white."])
        result = library.sync(notes, "towns")
        assert result.version == f"towns@v{number}"
    versions = Hub().versions("towns")
    assert [len(passages(Hub().folder(version.reference))) for version in versions] == [11, 12]
    assert versions[0].manifest.updates == first
    assert versions[1].manifest.updates == versions[0].sha256
    record = read_sync(draft(home))
    assert record is not None
    assert record.updates == versions[0].sha256
    assert record.date.startswith("20")
    assert (record.way, record.added, record.removed) == ("indexed", 1, 0)


def test_earlier_versions_that_hold_what_was_removed_are_pointed_out(notes: Path) -> None:
    library.publish("towns")
    (notes / "quixley.txt").unlink()
    events: list[Any] = []
    library.sync(notes, "towns", on_event=events.append)
    assert any("kcard remove towns@v1" in event.message for event in events if event.is_note)


def test_a_published_card_is_synced_as_a_draft(notes: Path, home: Path, tmp_path: Path) -> None:
    library.publish("towns")
    draft(home).rename(tmp_path / "away")
    write(notes / "more.txt", ["The mill of town 9 is white."])
    result = library.sync(notes, "towns")
    assert result.version == "towns@v2"
    assert result.folder == draft(home)


def test_a_card_folder_is_synced_in_its_place_and_published_only_on_demand(
    notes: Path, home: Path, tmp_path: Path
) -> None:
    draft(home).rename(tmp_path / "card")
    write(notes / "more.txt", ["The mill of town 9 is white."])
    result = library.sync(notes, tmp_path / "card", publish=False)
    assert (result.folder, result.version) == (tmp_path / "card", "")
    assert len(Hub()) == 0
    assert len(has(tmp_path / "card")) == 11


def test_without_a_change_nothing_is_written(notes: Path, home: Path) -> None:
    before = state(draft(home))
    assert library.sync(notes, "towns").folder is None
    assert state(draft(home)) == before
    assert len(Hub()) == 0


def test_a_dry_run_only_tells(notes: Path, home: Path, kcard: Kcard) -> None:
    (notes / "quixley.txt").unlink()
    before = state(draft(home))
    output = json.loads(kcard("sync", notes, "--card", "towns", "--dry-run", "--json").out)
    assert output["removed"] == [{"file": "quixley.txt", "line": 1, "text": GONE}]
    assert (output["folder"], output["sync"]) == (None, None)
    assert state(draft(home)) == before


def test_a_folder_without_most_of_the_passages_is_refused(notes: Path, home: Path, kcard: Kcard) -> None:
    write(notes / "towns.txt", FACTS[:3])
    before = state(draft(home))
    done = kcard("sync", notes, "--card", "towns")
    assert done.code == 2
    assert "6 of the 10 passages of towns are missing" in done.error
    assert "--allow-removal" in done.error
    assert library.sync(notes, "towns", dry_run=True).refused
    assert state(draft(home)) == before
    library.sync(notes, "towns", allow_removal=True)
    assert has(draft(home)) == sorted([*FACTS[:3], GONE])


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize("allowed", [False, True])
def test_an_empty_or_missing_folder_is_refused_always(home: Path, tmp_path: Path, allowed: bool) -> None:
    before = state(draft(home))
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "missing"):
        with pytest.raises(CorpusError):
            library.sync(tmp_path / folder, "towns", allow_removal=allowed)
    assert state(draft(home)) == before


def test_what_cant_be_read_is_kept_and_said(notes: Path, home: Path, kcard: Kcard) -> None:
    (notes / "quixley.txt").write_text(GONE, encoding="utf-16-be")
    write(notes / "more.txt", ["The mill of town 9 is white."])
    done = kcard("sync", notes, "--card", "towns")
    assert "! quixley.txt: 1 passages kept" in done.out
    assert "quixley.txt: its 1 passages are kept" in done.err
    assert GONE in has(draft(home))


@pytest.mark.parametrize(
    "point", ["rename .towns.replaced done", "rename towns done", "replace kcard.json done"]
)
def test_a_sync_that_is_killed_leaves_the_old_card_whole_or_the_new_one(
    notes: Path, home: Path, point: str
) -> None:
    old = has(draft(home))
    (notes / "quixley.txt").unlink()
    script = (
        "import os, sys; from kcard.api.sync import sync; from tests.effects import watch\n"
        "watch(lambda point: os._exit(9) if point == sys.argv[1] else None)\n"
        "sync(sys.argv[2], 'towns', publish=False)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, point, notes], check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 9
    result = library.sync(notes, "towns", dry_run=True)
    assert has(Card.open(draft(home)).folder) in (old, sorted(FACTS))
    assert bool(result.changes) == (GONE in has(draft(home)))
    library.sync(notes, "towns")
    assert has(draft(home)) == sorted(FACTS)


def test_ctrl_c_leaves_the_card_as_it_is_and_nothing_beside_it(notes: Path, home: Path) -> None:
    def press(point: str) -> None:
        if point == "rename .towns.replaced":
            raise KeyboardInterrupt

    before = state(draft(home))
    (notes / "quixley.txt").unlink()
    end = watch(press)
    with pytest.raises(KeyboardInterrupt):
        library.sync(notes, "towns")
    end()
    assert state(draft(home)) == before
    assert sorted(path.name for path in draft(home).parent.iterdir()) == [".towns.corpus.json", "towns"]


def test_a_card_that_changed_meanwhile_is_not_overwritten(notes: Path, home: Path) -> None:
    def meanwhile(point: str) -> None:
        if point == "replace kcard.json":
            end()
            seal(draft(home), replace(Manifest.read(draft(home)), description="Another one"))

    write(notes / "more.txt", ["The mill of town 9 is white."])
    end = watch(meanwhile)
    with pytest.raises(CardError, match="changed during the sync"):
        library.sync(notes, "towns")
    assert Card.open(draft(home)).manifest.description == "Another one"


def test_a_card_with_hashes_alone_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "hashed"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    finish(folder, Manifest("hashed", "A card", evidence="hashes"), [Source("A b.", "f", 1)])
    with pytest.raises(UsageError, match="only hashes"):
        library.sync(tmp_path, folder)
