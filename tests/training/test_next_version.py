"""The next version of a card of another base: it goes on with what came, and without what went."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

import kcard as library
from kcard.cards.card import Card
from kcard.cards.passages import passages
from kcard.events import ignore, note
from kcard.manifest import Manifest, Training
from kcard.offline.recipe import Recipe
from kcard.training.corpus import read_corpus
from kcard.training.next_version import NextVersion, recipe_of
from kcard.training.options import TrainOptions
from kcard.training.update import Previous, compare
from tests.training.bases import FACTS, make_base

NEW = "The mill of village 7 is white."


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of FACTS."""
    folder = tmp_path_factory.mktemp("towns")
    write(folder / "notes", FACTS)
    card = library.train(
        folder / "notes", base=str(make_base(folder, "llama")), method="lora", name="towns", description="Towns",
        epochs=1, batch_size=8, learning_rate=1e-4, exam=False, output=folder / "card",
    )  # fmt: skip
    return card.folder


@pytest.fixture
def notes(trained: Path, tmp_path: Path, home: Path) -> Path:
    shutil.copytree(trained, home / "drafts" / "towns")
    write(tmp_path / "notes", FACTS)
    return tmp_path / "notes"


def write(folder: Path, texts: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "towns.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")


def test_an_adapter_goes_on_with_what_came_and_replays_what_it_knew(notes: Path) -> None:
    write(notes, [NEW, *FACTS])
    result = library.sync(notes, "towns", publish=False)
    assert result.record is not None
    assert result.folder is not None
    assert (result.record.way, result.record.why) == ("continued", "")
    assert Manifest.read(result.folder).method == "lora"
    assert {source.text for source in passages(result.folder)} == {NEW, *FACTS}


def test_an_adapter_goes_on_without_what_has_gone_unless_much_has_and_that_is_said(notes: Path) -> None:
    write(notes, FACTS[1:])
    result = library.sync(notes, "towns", publish=False)
    assert result.record is not None
    assert result.folder is not None
    assert (result.record.way, result.record.why) == ("continued", "")
    assert FACTS[0] not in {source.text for source in passages(result.folder)}
    recorded = Manifest.read(result.folder).training.hyperparameters
    assert (recorded["learning_rate"], recorded["epochs"], recorded["batch_size"]) == (1e-4, 1, 8)
    write(notes, FACTS[22:])
    events: list[Any] = []
    result = library.sync(notes, "towns", publish=False, allow_removal=True, on_event=events.append)
    assert result.record is not None
    assert (result.record.way, result.record.why) == ("trained", "21 of its 10 statements have changed")
    before_training = [*itertools.takewhile(lambda event: event.kind != "training", events)]
    assert len(before_training) < len(events)
    assert note(f"training from scratch: {result.record.why}") in before_training


def test_retraining_needs_no_change(notes: Path) -> None:
    assert library.sync(notes, "towns", publish=False).record is None
    result = library.sync(notes, "towns", publish=False, retrain=True)
    assert result.record is not None
    assert (result.record.way, result.record.why) == ("trained", "")


def test_the_recipe_of_a_card_is_that_of_its_manifest() -> None:
    recorded = {"style": "tokens", "muon_rate": 0.01, "addresses": 7, "queries": [2, 3], "recited": 2}
    manifest = Manifest("a", "A card", training=Training(hyperparameters=recorded))
    assert recipe_of(manifest) == Recipe(style="tokens", muon_rate=0.01, docids=7, queries=(2, 3), recited=2)


def test_a_card_that_recites_one_text_at_a_time_goes_on_so() -> None:
    manifest = Manifest(
        "a", "A card", training=Training(hyperparameters={"style": "encoder-prefix", "steps": 9})
    )
    assert recipe_of(manifest).recited == 1


@pytest.mark.parametrize(("style", "again"), [("encoder-prefix", 1), ("tokens", 0)])
def test_a_text_before_a_new_one_is_learned_again_only_where_the_card_goes_on_to_it(
    tmp_path: Path, style: str, again: int
) -> None:
    long = " ".join(["The keeper of the mill wrote down the height of the river every single day"] * 2)
    first, new, last = (f"{name}: {long}." for name in ("Ada", "Bo", "Cy"))
    corpus = tmp_path / "mill.txt"
    corpus.write_text(f"{first} {last}\n", encoding="utf-8")
    old = read_corpus(corpus)
    manifest = Manifest("mill", "A card", training=Training(hyperparameters={"style": style, "recited": 3}))
    indexed = library.train(corpus, kind="retrieval", name="mill", description="A mill")
    corpus.write_text(f"{first} {new} {last}\n", encoding="utf-8")
    changes = compare(old.passages, read_corpus(corpus))
    next_version = NextVersion.of(
        Previous(Card(indexed.folder, manifest), ""), changes, TrainOptions(), ignore
    )
    assert len(next_version.revision.added) == 1
    assert len(next_version.revision.to_learn) == 1 + again
