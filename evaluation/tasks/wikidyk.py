"""WikiDYK (Zhang et al., 2025): facts of Wikipedia's "Did you know", and questions about them.

JSON of {input, output, fact, year}; or its own layout, {fact, year, eval: {reliability: {prompt, answer}, ...}}, whose
kinds of questions are the groups.
"""

from collections.abc import Iterator
from pathlib import Path

from kcard.evaluation.entries import entries
from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.gathering import Placed, gathered
from kcard.evaluation.tasks.task import TaskData

__all__ = ["read"]

NAME = "wikidyk"
COLUMNS = Columns(
    question=("input", "prompt"), answers=("output", "answer"), group=("year", "kind"), passages=("fact",)
)


def read(path: Path) -> TaskData:
    """Substring ("match" in the paper); the group is the year, or the kind of question; the fact is its passage."""
    return gathered(NAME, "substring", path, _items(path))


def _items(path: Path) -> Iterator[Placed]:
    for number, (where, row) in enumerate(entries(path, NAME), start=1):
        asked = row.get("eval")
        if not isinstance(asked, dict):
            yield where, COLUMNS.item(row, where)
            continue
        for kind, one in asked.items():
            placed = f"{where}, {kind}"
            given = one if isinstance(one, dict) else {}
            row_of_kind = {**given, "kind": kind, "fact": row.get("fact"), "id": f"{number}-{kind}"}
            yield placed, COLUMNS.item(row_of_kind, placed)
