"""A card follows its folder: it learns what came, and what has gone is nowhere in it; the folder is only read."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

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
from tests.corpora import town_facts, write_texts
from tests.disks import files_below, holding
from tests.effects import watch
from tests.fakes import notes_to

FACTS = town_facts(3, 3)
GONE = "The observatory of Quixley was founded by Zebulon Wrexham."


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    write_texts(folder / "towns.txt", FACTS)
    write_texts(folder / "quixley.txt", [GONE])
    library.train(folder, kind="retrieval", name="towns", description="Towns and Quixley")
    return folder


def draft(home: Path) -> Path:
    return home / "drafts" / "towns"


def has(folder: Path) -> list[str]:
    return sorted(source.text for source in passages(folder))


def stamps(folder: Path) -> dict[Path, int]:
    """When each file was changed."""
    return {path: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_what_came_is_found_and_what_has_gone_stands_in_no_file_of_the_card(notes: Path, home: Path) -> None:
    assert holding(draft(home), "Zebulon")
    (notes / "quixley.txt").unlink()
    write_texts(notes / "towns.txt", [*FACTS, "The mill of town 9 is white."])
    messages: list[str] = []
    corpus = stamps(notes)
    result = library.sync(notes, "towns", on_event=notes_to(messages))
    assert stamps(notes) == corpus, "the files are only read"
    assert [source.text for source in result.changes.added] == ["The mill of town 9 is white."]
    assert [source.text for source in result.changes.removed] == [GONE]
    assert has(draft(home)) == sorted([*FACTS, "The mill of town 9 is white."])
    for word in ("Zebulon", "Wrexham", "observatory"):
        assert holding(draft(home), word) == []
    # The description is the user's, so that it is only pointed out.
    assert "still says quixley" in " ".join(messages)


def test_a_description_that_was_derived_from_the_folder_follows_it(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "notes"
    write_texts(folder / "towns.txt", FACTS)
    write_texts(folder / "quixley.txt", [GONE])
    card = library.train(folder, kind="retrieval", name="towns")
    assert "quixley" in card.manifest.description.lower()
    (folder / "quixley.txt").unlink()
    write_texts(folder / "zenda.txt", ["The castle of Zenda has a moat."])
    library.sync(folder, "towns", publish=False)
    assert "zenda" in Manifest.read(draft(home)).description.lower()
    assert holding(draft(home), "Quixley") == holding(draft(home), "quixley") == []


def test_the_exam_of_the_last_version_goes_with_what_it_quotes(notes: Path, home: Path) -> None:
    library.exam("towns", limit=20)
    assert (draft(home) / "exam.json").exists()
    assert "## Exam" in (draft(home) / "README.md").read_text(encoding="utf-8")
    (notes / "quixley.txt").unlink()
    messages: list[str] = []
    library.sync(notes, "towns", on_event=notes_to(messages))
    assert not (draft(home) / "exam.json").exists()
    assert holding(draft(home), "Quixley was founded") == []
    assert "## Exam" not in (draft(home) / "README.md").read_text(encoding="utf-8")
    assert "kcard exam towns" in " ".join(messages)
    # An exam that the sync takes is not recommended.
    messages.clear()
    library.sync(notes, "towns", exam=True, retrain=True, on_event=notes_to(messages))
    assert (draft(home) / "exam.json").exists()
    assert "kcard exam" not in " ".join(messages)


def test_each_sync_is_a_version_that_names_the_last_one_and_its_date(notes: Path, home: Path) -> None:
    first = file_digest(draft(home) / MANIFEST)
    for number in (1, 2):
        write_texts(notes / f"more{number}.txt", [f"The mill of town 1{number} is white."])
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


def test_a_published_card_is_synced_as_a_draft_and_its_earlier_version_pointed_out(
    notes: Path, home: Path, tmp_path: Path
) -> None:
    library.publish("towns")
    draft(home).rename(tmp_path / "card")
    (notes / "quixley.txt").unlink()
    # A folder of a card is synced in its place, and published only on demand.
    result = library.sync(notes, tmp_path / "card", publish=False)
    assert (result.folder, result.version) == (tmp_path / "card", "")
    assert has(tmp_path / "card") == sorted(FACTS)
    messages: list[str] = []
    result = library.sync(notes, "towns", on_event=notes_to(messages))
    assert (result.folder, result.version) == (draft(home), "towns@v2")
    assert "kcard remove towns@v1" in " ".join(messages)


def test_without_a_change_nothing_is_written(notes: Path, home: Path) -> None:
    before = files_below(draft(home))
    assert library.sync(notes, "towns").folder is None
    assert files_below(draft(home)) == before
    assert len(Hub()) == 0


def test_a_dry_run_only_tells(notes: Path, home: Path, kcard: Kcard) -> None:
    (notes / "quixley.txt").unlink()
    before = files_below(draft(home))
    output = json.loads(kcard("sync", notes, "--card", "towns", "--dry-run", "--json").out)
    assert output["removed"] == [{"file": "quixley.txt", "line": 1, "text": GONE}]
    assert (output["folder"], output["sync"]) == (None, None)
    assert files_below(draft(home)) == before


def test_a_folder_without_most_of_the_passages_is_refused(notes: Path, home: Path, kcard: Kcard) -> None:
    write_texts(notes / "towns.txt", FACTS[:3])
    before = files_below(draft(home))
    done = kcard("sync", notes, "--card", "towns")
    assert done.code == 2
    assert "6 of the 10 passages of towns are missing" in done.error
    assert "--allow-removal" in done.error
    assert library.sync(notes, "towns", dry_run=True).refused
    assert files_below(draft(home)) == before
    library.sync(notes, "towns", allow_removal=True)
    assert has(draft(home)) == sorted([*FACTS[:3], GONE])


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize("allowed", [False, True])
def test_an_empty_or_missing_folder_is_refused_always(home: Path, tmp_path: Path, allowed: bool) -> None:
    before = files_below(draft(home))
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "missing"):
        with pytest.raises(CorpusError):
            library.sync(tmp_path / folder, "towns", allow_removal=allowed)
    assert files_below(draft(home)) == before


def test_what_cant_be_read_is_kept_and_said(notes: Path, home: Path, kcard: Kcard) -> None:
    (notes / "quixley.txt").write_text(GONE, encoding="utf-16-be")
    write_texts(notes / "more.txt", ["The mill of town 9 is white."])
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

    before = files_below(draft(home))
    (notes / "quixley.txt").unlink()
    end = watch(press)
    with pytest.raises(KeyboardInterrupt):
        library.sync(notes, "towns")
    end()
    assert files_below(draft(home)) == before
    assert sorted(path.name for path in draft(home).parent.iterdir()) == [".towns.corpus.json", "towns"]


def test_a_card_that_changed_meanwhile_is_not_overwritten(notes: Path, home: Path) -> None:
    def meanwhile(point: str) -> None:
        if point == "replace kcard.json":
            end()
            seal(draft(home), replace(Manifest.read(draft(home)), description="Another one"))

    write_texts(notes / "more.txt", ["The mill of town 9 is white."])
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
