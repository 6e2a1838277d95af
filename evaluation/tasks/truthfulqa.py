"""TruthfulQA (Lin et al., 2022), multiple choice with one true answer (MC1).

Its own mc_task.json ({question, mc1_targets: {option: 0 or 1}}), the Hub's form of it ({choices, labels}), the table
TruthfulQA.csv (Question, Best Answer, Incorrect Answers separated by semicolons), or {question, choices, answer}. The
authors' files name the true answer first; here its place is drawn for each question, always the same one.
"""

from pathlib import Path
from random import Random
from typing import Any

from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import from_rows
from kcard.evaluation.tasks.task import TaskData
from kcard.rows import Row
from kcard.sampling import derive_seed

__all__ = ["read"]

NAME = "truthfulqa"
COLUMNS = Columns(question=("question", "Question"), group=("Category", "category"))


def read(path: Path) -> TaskData:
    """Accuracy; the group is the category, where the file names it."""
    return from_rows(NAME, "accuracy", path, COLUMNS, _with_choices)


def _with_choices(row: Row) -> Row:
    options = _options(row)
    if not options:
        return row
    right = options[0]
    Random(derive_seed(0, NAME, *options)).shuffle(options)
    return {**row, "choices": options, "answer": right}


def _options(row: Row) -> list[Any]:
    """The options, the true one first; none where the row has choices of its own."""
    targets = row.get("mc1_targets")
    if isinstance(targets, dict):
        if isinstance(targets.get("choices"), list) and isinstance(targets.get("labels"), list):
            targets = dict(zip(map(str, targets["choices"]), targets["labels"], strict=False))
        return sorted(targets, key=lambda option: targets[option] != 1)
    best, wrong = row.get("Best Answer"), row.get("Incorrect Answers")
    if isinstance(best, str) and isinstance(wrong, str):
        return list(dict.fromkeys(text.strip() for text in (best, *wrong.split(";")) if text.strip()))
    return []
