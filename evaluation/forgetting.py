"""What an update cost and what it brought: recall of the old exam before and after, and of the new passages.

The same questions are asked of both versions. Of the next one an answer is accepted that any of its passages
makes right, new ones too: "which is a moon of Jupiter?" may have more answers than it had.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.format.passages import passages
from kcard.evaluation.exam import LIMIT, recall
from kcard.evaluation.questions import about
from kcard.evaluation.record import Mean, read_exam
from kcard.files import write_text
from kcard.json_values import build, canonical
from kcard.manifest import seal
from kcard.training.progress import Note
from kcard.training.update import previous

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card
    from kcard.training.options import TrainOptions

__all__ = ["UPDATE", "Forgetting", "read_forgetting", "update"]

UPDATE = "update.json"


@dataclass(frozen=True)
class Forgetting:
    """Recall around an update: shares of questions in [0, 1] with their intervals, None of no questions.

    updates        sha256 of the version that was trained on from
    questions      how many its exam has; recall of them `before` by that version and `after` by the next
    new_questions  how many were asked about passages that it has not; recall of them by the next version
    """

    updates: str
    questions: int
    before: Mean | None
    after: Mean | None
    new_questions: int
    new: Mean | None

    def to_json(self) -> str:
        return canonical(self)

    def summary(self) -> str:
        """One line for people."""
        return (
            f"recall of the old exam ({self.questions} questions): {self.before} before, {self.after} after; "
            f"of the new passages ({self.new_questions} questions): {self.new}"
        )


def update(corpus: str | Path, options: "TrainOptions", *, report: Callable[[Any], None]) -> "Card":
    """Train the next version of the card `options.update`, measure what it forgot, and write that to update.json.

    corpus  the new passages
    report  called with the events of training, and with Progress while both versions are asked

    Nothing is measured where only hashes of the passages travel: there is nothing to ask about. Raises what training,
    finding and loading a card raise.
    """
    from kcard.training.train import train

    assert options.update is not None
    old = previous(options.update)
    had = {source.text for source in passages(old.card.folder)}
    own = passages(old.card.folder)
    # What is looked up is not forgotten.
    drawn = _drawn(old.card)
    asked = about(own, *drawn) if own and old.card.manifest.has_model else []
    # The next version may take the folder of this one, so this one is asked first.
    before = recall(old.card.folder, asked, report=report) if asked else None
    made = train(corpus, options, report=report)
    both = passages(made.folder)
    if not asked or not both:
        return made
    new = [source for source in both if source.text not in had]
    again = about([source for source in both if source.text in had], *drawn, accepted=both)
    questions = about(new, LIMIT, 0, accepted=both)
    found = Forgetting(
        old.sha256,
        len(asked),
        before,
        recall(made.folder, again, report=report),
        len(questions),
        recall(made.folder, questions, report=report),
    )
    write_text(made.folder / UPDATE, found.to_json())
    seal(made.folder, made.manifest)
    report(Note(found.summary()))
    return type(made).open(made.folder)


def read_forgetting(folder: Path) -> Forgetting | None:
    """What update.json in a card's folder says; None where there is none."""
    path = folder / UPDATE
    if not path.is_file():
        return None
    return build(Forgetting, json.loads(path.read_text(encoding="utf-8")))


def _drawn(card: "Card") -> tuple[int, int]:
    """How many questions the card's exam had at most, and the seed by which they were drawn."""
    taken = read_exam(card.folder)
    return (LIMIT, 0) if taken is None else (taken.limit, taken.seed)
