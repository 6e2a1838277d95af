"""Forgetting in an update: recall of the old exam's questions before and after, and of questions about new passages.

Both versions answer the same questions. For the new version, answers from any of its passages are accepted: "Which is
a moon of Jupiter?" may have more answers than before.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.cards.card import Card
from kcard.cards.passages import passages
from kcard.evaluation.exam import MAX_QUESTIONS
from kcard.evaluation.questions import ExamQuestion, make_questions
from kcard.evaluation.recall import ask_card, score_recall
from kcard.evaluation.records import Mean, read_exam
from kcard.events import OnEvent, note
from kcard.io import build, canonical, write_text
from kcard.manifest import seal
from kcard.training.update import previous

if TYPE_CHECKING:
    from kcard.training.options import TrainOptions

UPDATE = "update.json"


@dataclass(frozen=True)
class Forgetting:
    """Recall before and after an update: shares of questions in [0, 1] with intervals; None without questions.

    updates        sha256 of the old version
    questions      number of questions of its exam; recall of the old version (`before`) and the new one (`after`)
    new_questions  number of questions about new passages; `new`: recall of the new version
    """

    updates: str
    questions: int
    before: Mean | None
    after: Mean | None
    new_questions: int
    new: Mean | None

    def summary(self) -> str:
        """Summarise the record in one line."""
        return (
            f"recall of the old exam ({self.questions} questions): {self.before} before, {self.after} after; "
            f"of the new passages ({self.new_questions} questions): {self.new}"
        )


def update_card(corpus: str | Path, options: "TrainOptions", *, on_event: OnEvent) -> Card:
    """Train the next version of the card `options.update`, measure what it forgot, and write update.json.

    corpus  the new passages
    on_event  called with the events of training, and while both versions generate

    Measures nothing if the card carries only hashes of its passages. Raises what training, finding and loading a card
    raise.
    """
    from kcard.training.train import train

    assert options.update is not None
    old = previous(options.update)
    own = passages(old.card.folder)
    had = {source.text for source in own}
    # Only a model forgets; an index does not.
    exam = read_exam(old.card.folder)
    limit, seed = MAX_QUESTIONS, 0
    if exam is not None:
        limit, seed = exam.limit, exam.seed
    exam_questions: list[ExamQuestion] = []
    if own and old.card.manifest.has_model:
        exam_questions = make_questions(own, limit, seed)
    # Measure the old version before training, which may write into its folder.
    before = measure_recall(old.card, exam_questions, on_event)
    card = train(corpus, options, on_event=on_event)
    both = passages(card.folder)
    if not exam_questions or not both:
        return card
    # The questions of the old exam, with answers from new passages accepted too.
    known = [source for source in both if source.text in had]
    new = [source for source in both if source.text not in had]
    again = make_questions(known, limit, seed, accepted=both)
    questions = make_questions(new, MAX_QUESTIONS, 0, accepted=both)
    record = Forgetting(
        old.sha256,
        len(exam_questions),
        before,
        measure_recall(card, again, on_event),
        len(questions),
        measure_recall(card, questions, on_event),
    )
    write_text(card.folder / UPDATE, canonical(record))
    seal(card.folder, card.manifest)
    on_event(note(record.summary()))
    return type(card).open(card.folder)


def measure_recall(card: Card, questions: Sequence[ExamQuestion], on_event: OnEvent) -> Mean | None:
    """Return the card's recall of these questions; None for none. Raises what loading the card raises."""
    if not questions:
        return None
    return Mean.of(score_recall(questions, ask_card(card, questions, 0, "cpu", on_event)), 0)


def read_forgetting(folder: Path) -> Forgetting | None:
    """Read update.json in a card's folder; None if there is none."""
    path = folder / UPDATE
    if not path.is_file():
        return None
    return build(Forgetting, json.loads(path.read_text(encoding="utf-8")))
