"""Whether the first document held the answer, where cards made an answer right, kept it, spoiled it or did not help
(Adaptive Retrieval, table 1)."""

from collections.abc import Mapping, Sequence
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.analysis import GateAnalysis, Given
from kcard.evaluation.gates.analyses.chart import Chart, Series
from kcard.evaluation.intervals import interval
from kcard.gates.record import Record

__all__ = ["RECALL", "analyse"]

NAME = "recall"
RECALL = "recall@1"  # among a record's scores: 1 where its first passage holds an accepted answer
RIGHT = 0.5  # from which score on an answer counts as right
GROUPS = {
    "right both ways": (True, True),
    "right only with cards": (False, True),
    "right only without cards": (True, False),
    "wrong both ways": (False, False),
}


def analyse(given: Given) -> GateAnalysis:
    """The table has a row a group, and one for all: how many questions, and recall@1 with Wilson's interval.

    Raises UsageError for a record without recall@1.
    """
    records = given.records
    for record in records:
        if RECALL not in record.scores:
            raise UsageError(
                f'the record of {record.question[:60]!r} has no "{RECALL}" among its scores: kcard gate collect '
                "writes it"
            )
    held = {name: [record for record in records if _group(record) == group] for name, group in GROUPS.items()}
    rows = tuple(_row(name, group, len(records)) for name, group in [*held.items(), ("all", records)])
    filled = [row for row in rows if row["n"]]
    columns = ([row[key] for row in filled] for key in ("group", "recall@1", "low", "high"))
    names, *figures = map(tuple, columns)
    chart = Chart("", "recall@1", (Series("", names, *figures),), kind="bar")
    return GateAnalysis(NAME, len(records), rows, chart)


def _group(record: Record) -> tuple[bool, bool]:
    return record.correct_without >= RIGHT, record.correct_with >= RIGHT


def _row(name: str, group: Sequence[Record], of: int) -> Mapping[str, Any]:
    recalls = [record.scores[RECALL] for record in group]
    low, high = interval(recalls)
    mean = sum(recalls) / len(recalls) if recalls else None
    return {
        "group": name,
        "n": len(group),
        "share": len(group) / of,
        "recall@1": mean,
        "low": low,
        "high": high,
    }
