"""PopQA (Mallen et al., 2023; Adaptive Retrieval): questions about subjects of known popularity, in 16 relations.

Its own table (popQA.tsv: question, possible_answers, prop, s_pop), or JSON of {input, output, s_pop}, whose relation is
that of the template which the question follows.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.drawn_shots import one_of_each_other
from kcard.evaluation.tasks.gathering import from_rows
from kcard.evaluation.tasks.task import TaskData
from kcard.gates.relations import BUILT_IN
from kcard.rows import Row

__all__ = ["read"]

COLUMNS = Columns(
    question=("question", "input"),
    answers=("possible_answers", "output"),
    group=("prop",),
    popularity=("s_pop",),
)


def read(path: Path) -> TaskData:
    """Substring accuracy; the group is the relation, the popularity the subject's monthly page views.

    The demonstrations are a question of each other relation.
    """
    data = from_rows("popqa", "substring", path, COLUMNS, _with_relation)
    return replace(data, shots=one_of_each_other(data.items))


def _with_relation(row: Row) -> Row:
    question = row.get("input")
    return {**row, "prop": _relation(question)} if "prop" not in row and isinstance(question, str) else row


def _relation(question: str) -> str:
    """The relation of the longest template that the question follows, "" for none."""
    fitting = [
        (len(before) + len(after), name)
        for name, before, after in _templates()
        if question.startswith(before) and question.endswith(after)
    ]
    return max(fitting, default=(0, ""))[1]


@cache
def _templates() -> list[tuple[str, str, str]]:
    """(relation, what stands before the subject, what stands after it)."""
    wordings: dict[str, str] = json.loads(BUILT_IN.read_text(encoding="utf-8"))
    return [(name, *wording.split("{}")) for name, wording in wordings.items()]  # type: ignore[misc]
