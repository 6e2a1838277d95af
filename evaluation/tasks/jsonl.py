"""Any file of {question, answers} or {question, choices, answer}: JSON lines, JSON, CSV or TSV, also compressed."""

from dataclasses import replace
from pathlib import Path

from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import from_rows
from kcard.evaluation.tasks.task import TaskData

__all__ = ["read"]

COLUMNS = Columns(
    group=("group", "relation", "prop", "subject", "category"),
    popularity=("popularity", "s_pop"),
    passages=("passages", "context"),
)


def read(path: Path) -> TaskData:
    """Accuracy where all questions are multiple choice, else exact match."""
    data = from_rows("jsonl", "em", path, COLUMNS)
    return replace(data, metric="accuracy") if all(item.choices for item in data.items) else data
