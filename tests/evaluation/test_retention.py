"""What an update cost and brought: the old exam asked of both versions, and the new passages of the next."""

import json
from pathlib import Path
from typing import Any

import pytest

from kcard.cards.passages import passages
from kcard.evaluation.exam import MAX_QUESTIONS
from kcard.evaluation.questions import make_questions
from kcard.evaluation.retention import UPDATE, measure_recall, read_forgetting, update_card
from kcard.events import ignore, note
from kcard.manifest import MANIFEST, file_digest
from kcard.training.options import TrainOptions
from kcard.training.train import train
from kcard.types import Source
from tests.corpora import SENATE

QUICK: dict[str, Any] = {
    "base": "embedded",
    "prompt_style": "tokens",
    "name": "senate",
    "description": "Senate",
}


def corpus(folder: Path, name: str, texts: list[str]) -> Path:
    path = folder / f"{name}.txt"
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_old_exam_is_asked_before_and_after_and_the_new_passages_after(tmp_path: Path) -> None:
    old = train(corpus(tmp_path, "old", SENATE[:5]), epochs=110, **QUICK)
    was = file_digest(old.folder / MANIFEST)
    questions = make_questions(passages(old.folder), MAX_QUESTIONS, 0)
    before = measure_recall(old, questions, ignore)
    events: list[Any] = []
    again = TrainOptions(update="senate", epochs=110)
    card = update_card(corpus(tmp_path, "new", SENATE[5:]), again, on_event=events.append)
    record = read_forgetting(card.folder)
    assert record is not None
    assert card.folder == old.folder
    assert (record.updates, record.questions) == (was, len(questions))
    assert record.new_questions >= 3
    assert record.before is not None
    assert record.after is not None
    assert record.before == before
    assert record.before.mean >= 0.6
    assert record.after == measure_recall(
        card, make_questions(passages(card.folder)[:5], MAX_QUESTIONS, 0), ignore
    )
    assert record.after.mean >= 0.4
    assert json.loads((card.folder / UPDATE).read_text())["updates"] == card.manifest.updates == was
    assert UPDATE in card.manifest.files
    assert f"({len(questions)} questions): {record.before} before, {record.after} after" in record.summary()
    assert note(record.summary()) in events


def test_a_card_that_only_looks_up_forgets_nothing(
    tmp_path: Path,
) -> None:
    train(corpus(tmp_path, "old", SENATE[:5]), kind="retrieval", name="senate")
    again = TrainOptions(update="senate")
    card = update_card(corpus(tmp_path, "new", SENATE[5:]), again, on_event=ignore)
    assert read_forgetting(card.folder) is None
    assert card.manifest.updates
    assert not (card.folder / UPDATE).exists()


def test_an_answer_that_a_new_passage_makes_right_is_accepted_of_the_next_version() -> None:
    moons = [Source(f"{name} is a moon of Jupiter.") for name in ("Io", "Europa", "Leda", "Elara")]
    alone, among = make_questions(moons[:2], 9, 0), make_questions(moons[:2], 9, 0, accepted=moons)
    assert [question.text for question in alone] == [question.text for question in among]
    assert {*alone[0].answers} <= {*among[0].answers}
    assert any({"Leda", "Elara"} <= {*question.answers} for question in among)
    assert not any("Leda" in question.answers for question in alone)
