"""What an update cost and brought: the old exam asked of both versions, and the new passages of the next."""

import json
from pathlib import Path
from typing import Any

import pytest

from kcard.cards.passages import passages
from kcard.errors import CardError
from kcard.evaluation.exam import measure_recall, rebuild_questions
from kcard.evaluation.questions import make_questions
from kcard.evaluation.retention import (
    SYNC,
    UPDATE,
    Leaks,
    SyncRecord,
    read_forgetting,
    read_sync,
    split_in_halves,
    update_card,
)
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
    was, questions = file_digest(old.folder / MANIFEST), rebuild_questions(old.folder)
    before = measure_recall(old.folder, questions)
    events: list[Any] = []
    again = TrainOptions(update="senate", epochs=2)
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
    assert record.after == measure_recall(card.folder, make_questions(passages(card.folder)[:5], 200, 0))
    # It went on from its weights: from scratch, two passes are too few to learn anything.
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


# A document leaks a removed text where it has words of it that neither what stays nor the question explain.

GONE = "Austin Scott won Georgia's 8th congressional district in the 2022 House elections."
STAYS = [
    "Mike Collins won Georgia's 10th congressional district in the 2022 House elections.",
    "John Carter won Texas's 8th congressional district in the 2022 House elections.",
]


@pytest.mark.parametrize(
    ("question", "document", "leaked"),
    [
        ("Who won the seat?", GONE, True),
        ("won Georgia's 8th congressional district", GONE, True),
        (
            "Georgia's 8th congressional district?",
            "John Carter won Georgia's 8th congressional district.",
            False,
        ),
        ("Who won the seat?", STAYS[0], False),
        ("Who won the seat?", "Austin Scott.", False),
        ("", "", False),
    ],
)
def test_words_of_a_removed_text_count_unless_what_stays_or_the_question_has_them(
    question: str, document: str, leaked: bool
) -> None:
    assert Leaks([GONE], STAYS)(question, document) == leaked


def test_a_short_text_counts_as_a_whole() -> None:
    leaks = Leaks(["Zebulon Wrexham"], STAYS)
    assert leaks("Who?", "Zebulon Wrexham")
    assert not leaks("Who?", "Zebulon")


def test_a_text_is_asked_for_by_each_of_its_halves() -> None:
    assert split_in_halves("a b c d e") == ["a b c", "d e"]
    assert split_in_halves("a") == ["a"]
    assert split_in_halves(" ") == []


# sync.json is read back as it was written, as its first version has it too, and a damaged one is named.

RECORD = SyncRecord("2026-11-23T10:00:00+00:00", "ab", "continued", "", 1, 0, 0, 0, 2.5, first=0.97)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_sync(tmp_path) is None
    RECORD.write(tmp_path)
    assert read_sync(tmp_path) == RECORD


def test_the_first_records_called_it_best(tmp_path: Path) -> None:
    RECORD.write(tmp_path)
    row = json.loads((tmp_path / SYNC).read_text(encoding="utf-8"))
    row["best"] = row.pop("first")
    (tmp_path / SYNC).write_text(json.dumps(row), encoding="utf-8")
    assert read_sync(tmp_path) == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{", '{"way": "continued"}', '{"unknown": 1}', "3"])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / SYNC).write_text(text, encoding="utf-8")
    with pytest.raises(
        CardError, match=r"sync\.json can't be read: .*delete it, and sync the card with --retrain"
    ):
        read_sync(tmp_path)
