"""A card with a model is synced: it is trained anew on its folder, so it knows nothing of what has gone."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kcard as library
from kcard.api.sync import SYNC, SyncRecord, read_sync
from kcard.cards.card import Card
from kcard.errors import CardError, TrainingInterrupted, UsageError
from kcard.evaluation.questions import ExamQuestion
from kcard.evaluation.recall import ask_card
from kcard.events import Event, ignore
from kcard.manifest import Manifest, seal
from tests.command import Kcard
from tests.corpora import write_texts
from tests.disks import files_below, holding
from tests.training.bases import make_base

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


def recited(folder: Path, question: str) -> str:
    """By the model alone."""
    card = Card.open(folder)
    alone = Card(folder, replace(card.manifest, kind="model"))
    return ask_card(alone, [ExamQuestion(question, ())], 0, "cpu", ignore)[0][0].text


@pytest.mark.slow
def test_it_learns_what_came_and_forgets_what_has_gone(tmp_path: Path, home: Path) -> None:
    notes, card = tmp_path / "notes", home / "drafts" / "towns"
    write_texts(notes / "towns.txt", [*FACTS, GONE])
    library.train(notes, base="embedded", name="towns", description="Towns", exam=False)
    assert "Zebulon" in recited(card, "Who founded the observatory of Quixley?")
    write_texts(
        notes / "towns.txt", ["The harbour of Ashford was built by the family Oakes.", *FACTS[1:], NEW]
    )
    result = library.sync(notes, "towns")
    assert result.record is not None
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of notes, and beside it a card that was trained on them for a few steps."""
    folder = tmp_path_factory.mktemp("trained")
    write_texts(folder / "notes" / "towns.txt", [*FACTS, GONE])
    brief(folder / "notes", folder / "towns")
    return folder


def brief(notes: Path, output: Path, **options: Any) -> Card:
    """A card that is trained for a few steps, so it knows nothing."""
    chosen: dict[str, Any] = {"kind": "model", "name": "towns", "description": "Towns", "epochs": 2}
    if "base" not in options:
        chosen |= {"base": "embedded", "prompt_style": "tokens"}
    return library.train(notes, exam=False, output=output, **(chosen | options))


@pytest.fixture
def notes(trained: Path, tmp_path: Path, home: Path) -> Path:
    """The folder, and the card as a draft."""
    shutil.copytree(trained / "towns", home / "drafts" / "towns")
    return Path(shutil.copytree(trained / "notes", tmp_path / "notes"))


def weights(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


@pytest.mark.numeric
def test_the_next_version_has_the_weights_of_a_card_that_never_read_what_was_removed(
    notes: Path, home: Path, tmp_path: Path
) -> None:
    write_texts(notes / "towns.txt", [*FACTS[1:], NEW])
    result = library.sync(notes, "towns", publish=False)
    assert result.record is not None
    assert result.record.way == "trained"
    assert weights(home / "drafts" / "towns") == weights(brief(notes, tmp_path / "other").folder)
    for word in ("Zebulon", "Wrexham", "Quixley", "Macash"):
        assert holding(home / "drafts" / "towns", word) == []
    # Without a change, a new version is made on demand alone.
    assert library.sync(notes, "towns", publish=False).record is None
    again = library.sync(notes, "towns", publish=False, retrain=True)
    assert again.record is not None
    assert again.record.way == "trained"
    # A card that does not name its base is refused before anything is done.
    card = Card.open(home / "drafts" / "towns")
    seal(card.folder, replace(card.manifest, training=replace(card.manifest.training, hyperparameters={})))
    write_texts(notes / "towns.txt", FACTS)
    with pytest.raises(UsageError, match="towns does not name the base that it was trained on"):
        library.sync(notes, "towns", dry_run=True)


@pytest.mark.numeric
@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_card_of_another_base_starts_from_the_base_again_also_after_an_update(
    tmp_path: Path, home: Path, method: str
) -> None:
    """The update went on from the card's weights, which knew what is removed now."""
    options: dict[str, Any] = {"base": str(make_base(tmp_path, "llama")), "method": method, "epochs": 1}
    options |= {"batch_size": 8, "learning_rate": 1e-3}
    notes, more, card = tmp_path / "notes", tmp_path / "more", home / "drafts" / "towns"
    write_texts(notes / "towns.txt", [*FACTS, GONE])
    write_texts(more / "more.txt", [NEW])
    brief(notes, card, **options)
    library.train(more, update="towns", exam=False)
    write_texts(notes / "towns.txt", FACTS)
    write_texts(notes / "more.txt", [NEW])
    library.sync(notes, "towns", publish=False)
    assert weights(card) == weights(brief(notes, tmp_path / "other", **options).folder)
    assert holding(card, "Zebulon") == []


def test_a_dry_run_tells_how_long_training_took_the_last_time(notes: Path, home: Path, kcard: Kcard) -> None:
    dry = ("sync", notes, "--card", "towns", "--dry-run")
    write_texts(notes / "towns.txt", [*FACTS, GONE, NEW])
    foreseen = json.loads(kcard(*dry, "--json").out)["foreseen"]
    assert foreseen["way"] == "trained"
    assert foreseen["seconds"] > 0
    assert "would train the model anew (last time" in kcard(*dry).out
    # Of a version that went on from the weights of the one before, the time says nothing.
    continued = replace(RECORD, way="continued")
    continued.write(home / "drafts" / "towns")
    assert json.loads(kcard(*dry, "--json").out)["foreseen"] == {"way": "trained", "seconds": None}


@pytest.mark.parametrize("minutes", [None, 0.003])
def test_training_takes_the_minutes_of_the_last_version_unless_others_are_given(
    tmp_path: Path, home: Path, minutes: float | None
) -> None:
    folder, card = tmp_path / "notes", home / "drafts" / "towns"
    write_texts(folder / "towns.txt", FACTS[:3])
    brief(folder, card, epochs=None, minutes=0.002)
    write_texts(folder / "towns.txt", FACTS[1:3])
    library.sync(folder, "towns", publish=False, minutes=minutes)
    assert Manifest.read(card).training.hyperparameters["minutes"] == (minutes or 0.002)


def test_ctrl_c_during_training_leaves_the_card_as_it_is_and_nothing_beside_it(
    notes: Path, home: Path
) -> None:
    def press(event: Event) -> None:
        if event.kind == "training":
            raise KeyboardInterrupt

    write_texts(notes / "towns.txt", FACTS)
    card = Card.open(home / "drafts" / "towns")
    long = replace(
        card.manifest.training, hyperparameters={**card.manifest.training.hyperparameters, "epochs": 500}
    )
    seal(card.folder, replace(card.manifest, training=long))
    before = files_below(home / "drafts")
    with pytest.raises(TrainingInterrupted, match="the card is as it was"):
        library.sync(notes, "towns", on_event=press)
    assert files_below(home / "drafts") == before


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--device", "tpu"), "device 'tpu' is unknown: choose cpu, cuda or cuda:N"),
        (("--micro-batch", 0), "micro_batch 0 must be above 0"),
    ],
)
def test_a_sync_refuses_what_the_machine_does_not_allow(
    option: tuple[Any, Any], message: str, tmp_path: Path, home: Path, kcard: Kcard
) -> None:
    folder = tmp_path / "notes"
    write_texts(folder / "towns.txt", FACTS[:6])
    base = str(make_base(tmp_path, "llama"))
    brief(folder, home / "drafts" / "towns", base=base, epochs=1, batch_size=6)
    write_texts(folder / "towns.txt", FACTS[1:6])
    assert message in kcard("sync", folder, "--card", "towns", *option).error


@pytest.mark.slow
def test_a_sync_trains_as_the_machine_allows(tmp_path: Path, home: Path, kcard: Kcard) -> None:
    folder = tmp_path / "notes"
    write_texts(folder / "towns.txt", FACTS[:6])
    base = str(make_base(tmp_path, "llama"))
    brief(folder, home / "drafts" / "towns", base=base, method="full", epochs=1, batch_size=6)
    write_texts(folder / "towns.txt", FACTS[1:6])
    options = ("--device", "cpu", "--micro-batch", "3", "--gradient-checkpointing")
    done = kcard("sync", folder, "--card", "towns", "--no-publish", *options)
    assert done.code == 0, done.err
    recorded = json.loads((home / "drafts" / "towns" / "kcard.json").read_text())["training"]
    assert recorded["hyperparameters"]["device"] == "cpu"


# sync.json is read back as it was written, as earlier versions wrote it too, and a damaged one is named.

RECORD = SyncRecord("2026-11-23T10:00:00+00:00", "ab", "trained", 1, 0, 0, 0, 2.5)


@pytest.mark.parametrize("recalled", [{"best": 0.9}, {"why": "", "first": 0.9, "recall": {"leaked": 0}}])
def test_a_record_of_an_earlier_version_is_read_without_what_it_measured(
    tmp_path: Path, recalled: dict[str, Any]
) -> None:
    RECORD.write(tmp_path)
    row = json.loads((tmp_path / SYNC).read_text(encoding="utf-8"))
    (tmp_path / SYNC).write_text(json.dumps({**row, **recalled}), encoding="utf-8")
    assert read_sync(tmp_path) == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{", '{"way": "continued"}', '{"unknown": 1}', "3"])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / SYNC).write_text(text, encoding="utf-8")
    with pytest.raises(
        CardError, match=r"sync\.json can't be read: .*delete it, and sync the card with --retrain"
    ):
        read_sync(tmp_path)
