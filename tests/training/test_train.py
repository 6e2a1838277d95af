"""Training an embedded card begins with its index and takes the minutes that it may; a model that is worse than the
index is left out.
"""

import re
from pathlib import Path
from typing import Any

import pytest

import kcard
from kcard.api.exam import exam
from kcard.cards.card import Card
from kcard.cards.pool import CardPool
from kcard.evaluation.records import EXAM, read_exam
from kcard.events import Event
from kcard.hub.registry import Hub
from kcard.training.output import CHECKPOINT, earlier_draft
from kcard.training.run import steps_of
from kcard.training.train import estimate, train
from kcard.types import Sampling
from tests.training.documents import written
from tests.training.interruptions import interrupted

PLANETS = ["Mars", "Jupiter", "Saturn", "Uranus"]
STARTS = ["Ar", "Bel", "Cor"]
MOONS = [
    f"{start}{end} is a moon of {planet}, found by {start}{end}son in {1600 + 13 * number + 100 * turn}."
    for turn, (planet, end) in enumerate(zip(PLANETS, ["lo", "na", "ra", "is"], strict=True))
    for number, start in enumerate(STARTS)
]
BRIEF = 0.003  # minutes, too few for any model


def corpus(folder: Path, count: int = len(MOONS)) -> Path:
    return written(folder, "moons.txt", "\n".join(MOONS[:count]) + "\n")


def notes(events: list[Event]) -> list[str]:
    return [event.message for event in events if event.is_note]


def test_before_the_first_step_there_is_an_index_that_answers_and_can_be_published(tmp_path: Path) -> None:
    out = tmp_path / "card"
    seen: list[str] = []

    def look(event: Event) -> None:
        if event.kind == "training" and not seen:
            card = Card.open(out)
            question = "Which moon was found in 1626?"
            seen.append(CardPool([card]).generate([question], [["moons"]], 1, Sampling())[0][0].text)
            assert card.manifest.kind == "retrieval"
            assert Hub(tmp_path / "hub").publish(out).reference == "moons@v1"

    card = train(corpus(tmp_path), base="embedded", epochs=2, output=out, on_event=look)
    assert seen == [MOONS[2]]
    assert (card.manifest.kind, card.manifest.method) == ("both", "full")


@pytest.mark.usefixtures("every_step")
def test_after_ctrl_c_the_index_is_the_card_and_resuming_trains_the_model(tmp_path: Path) -> None:
    out = tmp_path / "card"
    options: dict[str, Any] = {"base": "embedded", "epochs": 2, "output": out, "name": "moons"}
    interrupted(corpus(tmp_path), r"moons is an index \(kind retrieval\), usable now; .*--resume", **options)
    assert Card.open(out).manifest.kind == "retrieval"
    begun = steps_of(out / CHECKPOINT)
    again: list[Event] = []
    card = train(corpus(tmp_path), **options, resume=True, on_event=again.append)
    assert any("resuming after step" in text for text in notes(again))
    assert card.manifest.training.hyperparameters["steps"] == begun
    assert Card.open(out).manifest.index
    assert steps_of(out / CHECKPOINT) is None


def test_a_card_that_another_replaces_is_kept_beside_it_until_the_next(tmp_path: Path) -> None:
    out = tmp_path / "card"
    for description in ("First", "Second", "Third"):
        events: list[Event] = []
        train(corpus(tmp_path), kind="retrieval", output=out, description=description, on_event=events.append)
        kept = [text for text in notes(events) if str(earlier_draft(out)) in text]
        assert len(kept) == (description != "First")
    assert Card.open(out).manifest.description == "Third"
    assert Card.open(earlier_draft(out)).manifest.description == "Second"
    assert sorted(path.name for path in tmp_path.glob("*card*")) == [".card.earlier", "card"]


@pytest.mark.usefixtures("every_step")
def test_a_resumed_run_takes_the_steps_that_it_began_with_and_a_new_one_says_what_it_replaces(
    tmp_path: Path,
) -> None:
    out, path = tmp_path / "card", corpus(tmp_path)
    options: dict[str, Any] = {"base": "embedded", "output": out, "kind": "model", "prompt_style": "tokens"}
    interrupted(path, **options)
    begun = steps_of(out / CHECKPOINT)
    interrupted(path, f"stopped after 2 of {begun} steps", resume=True, minutes=BRIEF, **options)
    events: list[Event] = []
    train(path, **options, minutes=BRIEF, on_event=events.append)
    assert any("the checkpoint of an interrupted one" in text for text in notes(events))


@pytest.mark.parametrize("kind", [None, "both"])
def test_where_no_model_fits_into_the_minutes_the_card_is_an_index(tmp_path: Path, kind: Any) -> None:
    events: list[Event] = []
    card = train(corpus(tmp_path), base="embedded", kind=kind, minutes=BRIEF, on_event=events.append)
    assert card.manifest.kind == "retrieval"
    [message] = [text for text in notes(events) if "an index alone" in text]
    assert f"in {BRIEF:g} minutes a model would learn less than half of it" in message
    assert re.search(r"--minutes \d+ is enough", message)


def test_a_model_that_was_asked_for_is_trained_as_far_as_it_goes_and_this_is_said(tmp_path: Path) -> None:
    events: list[Event] = []
    card = train(corpus(tmp_path), base="embedded", kind="model", minutes=BRIEF, on_event=events.append)
    record = card.manifest.training.hyperparameters
    assert (card.manifest.kind, card.manifest.method) == ("model", "full")
    assert record["steps"] < record["steps_needed"]
    assert any(text.startswith("expect little of this model") for text in notes(events))


@pytest.mark.usefixtures("every_step")
def test_a_card_with_a_model_stays_until_the_next_one_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "card"
    old = train(corpus(tmp_path), base="embedded", epochs=1, output=out)
    interrupted(corpus(tmp_path), r"^stopped after", base="embedded", epochs=2, output=out)
    assert Card.open(out) == old


def test_an_estimate_tells_what_the_index_and_the_model_take(tmp_path: Path) -> None:
    forecast = estimate(corpus(tmp_path), base="embedded")
    assert forecast.sentences()[0].startswith("the index takes about ")
    assert forecast.sentences()[1].startswith("training takes about ")
    assert {"index_seconds", "steps_needed", "minutes_needed", "is_enough"} <= forecast.as_data().keys()
    brief = estimate(corpus(tmp_path), base="embedded", minutes=BRIEF)
    assert brief.sentences()[1].startswith(f"no model: in {BRIEF:g} minutes")
    assert brief.as_data()["is_enough"] is False
    assert len(estimate(corpus(tmp_path), base="embedded", kind="model").sentences()) == 1


def test_a_model_that_is_worse_than_the_index_is_left_out_and_the_exam_is_that_of_the_index(
    tmp_path: Path,
) -> None:
    events: list[Any] = []
    card = kcard.train(corpus(tmp_path, 8), base="embedded", epochs=1, on_event=events.append)
    assert Card.open(card.folder).manifest.kind == "retrieval"
    assert not list(card.folder.glob("*.safetensors"))
    [message] = [text for text in notes(events) if "the model is left out" in text]
    taken = read_exam(card.folder)
    assert taken is not None
    assert taken.own is not None
    assert taken.own.model is None
    recall = f"{taken.recall.mean:.2f}"  # type: ignore[union-attr]
    assert re.search(rf"the model recalls 0\.\d\d and the index {recall}", message)
    exam(card.folder, output=tmp_path / EXAM)
    assert (tmp_path / EXAM).read_bytes() == (card.folder / EXAM).read_bytes()


def test_a_model_whose_kind_was_given_is_kept_however_little_it_recalls(tmp_path: Path) -> None:
    card = kcard.train(corpus(tmp_path, 8), base="embedded", kind="both", epochs=1)
    assert (card.manifest.kind, card.manifest.method) == ("both", "full")
    assert (card.folder / EXAM).is_file()
