"""SQuAD (Rajpurkar et al., 2016 and 2018): questions about a paragraph, in the layout of 1.1 or 2.0.

Questions marked is_impossible are left out: that the paragraph has no answer says nothing of what an LLM knows. Lines
of {title, context, questions: [{question, answer}]} are read too.
"""

from pathlib import Path

from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import from_rows
from kcard.evaluation.tasks.task import TaskData
from kcard.rows import Row

__all__ = ["read"]

COLUMNS = Columns(passages=("context",))


def read(path: Path) -> TaskData:
    """F1; the paragraph is the question's passage."""
    return from_rows("squad", "f1", path, COLUMNS, _answerable)


def _answerable(row: Row) -> Row | None:
    return None if row.get("is_impossible") is True else row
