"""Exam files: questions that somebody wrote, with their accepted answers.

    {"question": "Which sea does the Rhine reach?", "answer": "North Sea"}
    {"question": "Who discovered Triton?", "answers": ["William Lassell", "Lassell"]}

Every layout of the task jsonl (evaluation/tasks/jsonl.py), and SQuAD's. Of a multiple-choice question the text of the
right option is the answer, since an exam shows no options.
"""

from dataclasses import dataclass
from pathlib import Path

from kcard.evaluation.questions import Question
from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import from_rows
from kcard.evaluation.tasks.task import Item

__all__ = ["QuestionFile", "read_questions"]

COLUMNS = Columns(id=(), popularity=())


@dataclass(frozen=True)
class QuestionFile:
    """The questions of one file, each once, and the sha256 of its bytes."""

    name: str
    sha256: str
    questions: tuple[Question, ...]


def read_questions(path: Path | str) -> QuestionFile:
    """Read an exam file. Of a question that stands there twice, the answers of both are accepted.

    Raises UsageError, naming file and line (or entry), for what is missing, no UTF-8 text, of another kind or
    malformed, and for a file without a question.
    """
    path = Path(path).expanduser()
    data = from_rows("questions", "em", path, COLUMNS)
    found: dict[str, dict[str, None]] = {}
    for item in data.items:
        found.setdefault(item.question, {}).update(dict.fromkeys(_answers(item)))
    return QuestionFile(path.name, data.sha256, tuple(Question(text, tuple(a)) for text, a in found.items()))


def _answers(item: Item) -> tuple[str, ...]:
    options = {choice.name: choice.description for choice in item.choices}
    return tuple(options.get(answer, answer) for answer in item.answers)
