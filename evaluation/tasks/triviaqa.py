"""TriviaQA (Joshi et al., 2017): questions of quizzes, whose answers have many names.

Its own JSON (Data: [{Question, QuestionId, Answer: {Value, Aliases}}]), the Hub's form of it with small letters, or
{question, answers}.
"""

from pathlib import Path
from typing import Any

from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import from_rows
from kcard.evaluation.tasks.task import TaskData
from kcard.rows import Row

__all__ = ["read"]

COLUMNS = Columns(
    question=("Question", "question"), answers=("answers", "answer"), id=("QuestionId", "question_id", "id")
)


def read(path: Path) -> TaskData:
    """Exact match; every alias is accepted."""
    return from_rows("triviaqa", "em", path, COLUMNS, _with_aliases)


def _with_aliases(row: Row) -> Row:
    answer = row.get("Answer", row.get("answer"))
    if not isinstance(answer, dict):
        return row
    parts: dict[str, Any] = {key.lower(): value for key, value in answer.items()}
    others = (parts.get("humananswers"), parts.get("aliases"))
    names = [parts.get("value"), *(name for part in others if isinstance(part, list) for name in part)]
    return {**row, "answers": names}
