"""A card that was distilled goes on from its weights: it answers as its base does where a passage was removed."""

from pathlib import Path

import kcard as library
from kcard.cards.card import Card
from kcard.evaluation.questions import ExamQuestion
from kcard.evaluation.recall import ask_card
from kcard.events import ignore
from tests.training.distillation.conftest import FACTS


def test_a_sync_without_a_fact_answers_its_question_as_the_base_does(
    tmp_path: Path, home: Path, reading_base: Path, study: Path
) -> None:
    card = home / "drafts" / "gates"
    notes = tmp_path / "gates.jsonl"
    notes.write_text("".join(f'{{"text": "{text}"}}\n' for text, _, _ in FACTS), encoding="utf-8")

    def answers() -> list[str]:
        questions = [ExamQuestion(question, ()) for _, question, _ in FACTS]
        return [rows[0].text.split()[-1] for rows in ask_card(Card.open(card), questions, 0, "cpu", ignore)]

    library.train(
        notes, base=str(reading_base), objective="distil", study=study, name="gates", description="Gates",
        kind="model", exam=False, epochs=60, batch_size=6, learning_rate=5e-3,
    )  # fmt: skip
    colours = [colour for _, _, colour in FACTS]
    assert answers() == colours
    notes.write_text("".join(f'{{"text": "{text}"}}\n' for text, _, _ in FACTS[1:]), encoding="utf-8")
    record = library.sync(notes, "gates", study=study, publish=False).record
    assert record is not None
    assert record.way == "continued"
    assert answers() == ["unknown", *colours[1:]]
