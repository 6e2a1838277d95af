"""A card with a model is synced: it recites what came, not what has gone, and what stays as before. Real training."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kcard as library
from kcard.cards.card import Card
from kcard.errors import TrainingInterrupted
from kcard.evaluation.questions import ExamQuestion
from kcard.evaluation.recall import ask_card
from kcard.evaluation.records import Mean
from kcard.evaluation.retention import Retention, read_sync
from kcard.events import Event, ignore
from kcard.offline import incremental_update as incremental
from tests.command import Kcard

PLACES = [
    "Ashford",
    "Brigham",
    "Caldwell",
    "Dunmore",
    "Elkhart",
    "Fairfax",
    "Granby",
    "Holston",
    "Ipswich",
    "Jasper",
]
BUILT = [f"The harbour of {place} was built by the family Mac{place[:3].lower()}." for place in PLACES]
NAMED = [f"Old {place[::-1].title()} Lane is the longest street of {place}." for place in PLACES]
FACTS = [*BUILT, *NAMED]
GONE = "The observatory of Quixley was founded by Zebulon Wrexham."
NEW = "The lighthouse of Port Ondine is kept by Saskia Vandermeer."


def write(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")


def recited(folder: Path, question: str) -> str:
    """By the model alone."""
    card = Card.open(folder)
    alone = Card(folder, replace(card.manifest, kind="model"))
    return ask_card(alone, [ExamQuestion(question, ())], 0, "cpu", ignore)[0][0].text


def holding(folder: Path, text: str) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if text.encode() in path.read_bytes()]


@pytest.mark.slow
def test_it_learns_what_came_and_forgets_what_has_gone(tmp_path: Path, home: Path) -> None:
    notes, card = tmp_path / "notes", home / "drafts" / "towns"
    write(notes / "towns.txt", [*FACTS, GONE])
    library.train(notes, base="embedded", name="towns", description="Towns", exam=False)
    assert "Zebulon" in recited(card, "Who founded the observatory of Quixley?")
    write(notes / "towns.txt", ["The harbour of Ashford was built by the family Oakes.", *FACTS[1:], NEW])
    result = library.sync(notes, "towns")
    assert result.record is not None
    assert result.record.recall is not None
    assert result.record.recall.forgotten
    assert result.record == read_sync(card)
    assert "Vandermeer" in recited(card, "Who keeps the lighthouse of Port Ondine?")
    assert "Oakes" in recited(card, "Who built the harbour of Ashford?")
    for word in ("Quixley", "Zebulon", "Wrexham", "Macash"):
        assert holding(card, word) == []
        for question in (
            "Who founded the observatory of Quixley?",
            GONE,
            "Who built the harbour of Ashford?",
        ):
            assert word not in recited(card, question)


@pytest.mark.parametrize(
    ("staying", "new", "count", "learned"),
    [
        (1.0, 0.0, 1, True),
        (1.0, 0.5, 4, False),
        (0.9, 0.5, 4, True),
        (0.9, 0.25, 4, False),
        (0.5, 0.5, 40, True),
    ],
)
def test_what_has_come_counts_as_learned_if_it_is_recalled_about_as_well_as_what_stays(
    staying: float, new: float, count: int, learned: bool
) -> None:
    after, come = Mean(staying, 0.0, 1.0), Mean(new, 0.0, 1.0)
    assert Retention(after=after, new_questions=count, new=come).learned == learned


@pytest.mark.parametrize(
    ("count", "lost", "gained", "is_kept"),
    [
        (20, 1, 0, True),
        (70, 4, 0, True),  # within two standard deviations
        (70, 5, 0, False),
        (70, 9, 4, True),
        (1000, 10, 0, True),  # one in a hundred
        (1000, 40, 20, False),
    ],
)
def test_what_stays_counts_as_kept_unless_clearly_more_is_lost_than_gained(
    count: int, lost: int, gained: int, is_kept: bool
) -> None:
    assert Retention(kept_questions=count, lost=lost, gained=gained).kept == is_kept


@pytest.mark.parametrize(
    ("count", "share", "drifted"), [(70, 0.93, False), (70, 0.88, True), (4000, 0.95, True)]
)
def test_many_syncs_together_may_lose_no_more_than_one(count: int, share: float, drifted: bool) -> None:
    assert Retention(kept_questions=count, after=Mean(share, 0.0, 1.0)).drifted(0.99) == drifted
    assert not Retention().drifted(0.99)
    assert Retention().forgotten
    assert not Retention(leaked=1).forgotten


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of notes, and beside it a card that was trained on them for a few steps."""
    folder = tmp_path_factory.mktemp("trained")
    write(folder / "notes" / "towns.txt", [*FACTS, GONE])
    chosen: dict[str, Any] = {"kind": "model", "name": "towns", "description": "Towns", "epochs": 2}
    library.train(folder / "notes", prompt_style="tokens", exam=False, output=folder / "towns", **chosen)
    return folder


@pytest.fixture
def brief(trained: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, and the card as a draft; its next versions are trained for a few steps too, so it knows nothing."""
    monkeypatch.setattr(incremental, "FLOOR", {"tokens": 2})
    monkeypatch.setattr(incremental, "EPOCHS", {"tokens": 1})
    shutil.copytree(trained / "towns", home / "drafts" / "towns")
    return Path(shutil.copytree(trained / "notes", tmp_path / "notes"))


@pytest.mark.parametrize(
    ("remembered", "why"),
    [
        (Retention(removed_questions=4, unexplained=0.5, chance=0.01), "it still recalls what was removed"),
        (Retention(kept_questions=50, lost=6), "it recalls less of what stays"),
        (
            Retention(after=Mean(1.0, 1.0, 1.0), new_questions=4, new=Mean(0.25, 0.0, 0.6)),
            "it recalls little of what was added",
        ),
    ],
)
def test_a_model_that_has_not_forgotten_or_not_learned_is_trained_from_scratch_and_that_is_said(
    brief: Path, home: Path, monkeypatch: pytest.MonkeyPatch, remembered: Retention, why: str
) -> None:
    write(brief / "towns.txt", FACTS)
    monkeypatch.setattr("kcard.evaluation.retention.measure_retention", lambda *_, **__: remembered)
    events: list[Any] = []
    result = library.sync(brief, "towns", publish=False, on_event=events.append)
    assert result.record is not None
    assert (result.record.way, why in result.record.why) == ("trained", True)
    assert any(f"training from scratch, since {why}" in event.message for event in events if event.is_note)
    for word in ("Zebulon", "Wrexham", "Quixley"):
        assert holding(home / "drafts" / "towns", word) == []


def test_a_sync_with_a_model_tells_what_it_remembers(brief: Path, kcard: Kcard) -> None:
    write(brief / "towns.txt", [*FACTS, GONE, NEW])
    done = kcard("sync", brief, "--card", "towns", "--json")
    assert done.code == 0, done.err
    sync = json.loads(done.out)["sync"]
    assert sync["way"] in ("continued", "trained")
    assert sync["recall"]["new_questions"] == 1
    assert sync["recall"]["leaked"] == 0


def test_a_dry_run_tells_how_the_next_version_would_be_made(brief: Path, kcard: Kcard) -> None:
    dry = ("sync", brief, "--card", "towns", "--dry-run")
    write(brief / "towns.txt", [*FACTS, GONE, NEW])
    assert json.loads(kcard(*dry, "--json").out)["foreseen"] == {
        "way": "continued",
        "why": "",
        "seconds": None,
    }
    write(brief / "towns.txt", [*FACTS, GONE, *(f"The mill of village {n} is white." for n in range(25))])
    foreseen = json.loads(kcard(*dry, "--json").out)["foreseen"]
    assert (foreseen["way"], foreseen["why"]) == ("trained", "25 of its 46 statements have changed")
    assert foreseen["seconds"] > 0
    assert "would train the model from scratch (last time" in kcard(*dry).out


def test_ctrl_c_during_training_leaves_the_card_as_it_is_and_nothing_beside_it(
    brief: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(event: Event) -> None:
        if event.kind == "training":
            raise KeyboardInterrupt

    monkeypatch.setattr(incremental, "FLOOR", {"tokens": 5000})
    write(brief / "towns.txt", FACTS)
    before = {path: path.read_bytes() for path in (home / "drafts").rglob("*") if path.is_file()}
    with pytest.raises(TrainingInterrupted, match="the card is as it was"):
        library.sync(brief, "towns", on_event=press)
    assert {path: path.read_bytes() for path in (home / "drafts").rglob("*") if path.is_file()} == before
