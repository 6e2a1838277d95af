"""Cards against retrieval over the same text (Knowledge Card, section 5 and table 4)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis, Cell
from kcard.evaluation.charts.chart import Intervals, Point
from kcard.evaluation.paired_tests import compared
from kcard.evaluation.record import Mean
from kcard.evaluation.report.brief import holds
from kcard.evaluation.report.outcome import right
from kcard.evaluation.runs.result import Result

__all__ = ["sources"]

CARDS = {"bottom-up", "top-down", "hybrid"}  # modes
RETRIEVAL = {"retrieval", "replug"}


@dataclass
class _Read:
    """One setting of a task: by question, whether its answer was right, and whether a passage that the LLM read holds
    an accepted answer."""

    correct: dict[str, bool] = field(default_factory=dict)
    held: dict[str, bool] = field(default_factory=dict)
    modes: set[str] = field(default_factory=set)

    def add(self, result: Result, metric: str) -> None:
        self.correct[result.id] = right(result.scores, metric)
        read = [p for p in result.trace.get("passages", ()) if isinstance(p, dict) and p.get("kept")]
        self.modes.add(str(result.trace.get("mode")))
        self.modes |= {str(p.get("card")) for p in read} & RETRIEVAL  # cards and retrieval together
        self.held[result.id] = any(holds(p, result) for p in read)


def sources(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """Every setting with cards alone against every one with retrieval alone, on the questions that both answered.

    Raises UsageError where a run has not both.
    """
    found: dict[tuple[str, str], _Read] = {}
    for result in results:
        if not result.error:
            found.setdefault((result.task, result.setting), _Read()).add(result, metrics[result.task])
    wrote = [key for key, read in found.items() if read.modes <= CARDS]
    looked_up = [key for key, read in found.items() if read.modes <= RETRIEVAL]
    pairs = [(one, two) for one in wrote for two in looked_up if one[0] == two[0]]
    rows = [_row(one, two[1], found[one], found[two]) for one, two in pairs]
    if not rows:
        raise UsageError(
            "nothing to compare: run a setting with cards, such as bottom-up, and retrieval or replug"
        )
    return Analysis(
        "sources",
        "Cards and retrieval",
        "Cards against passages retrieved from a corpus, by default the cards' own source passages, on the same "
        "questions. Held: the share of questions for which a passage that the LLM read holds an accepted answer. "
        "p is McNemar's.",
        (
            *(
                "task",
                "cards",
                "retrieval",
                "questions",
                "score, cards",
                "score, retrieval",
                "difference",
                "p",
            ),
            *("only cards right", "only retrieval right", "held, cards", "held, retrieval"),
        ),
        tuple(rows),
        (_chart(rows),),
    )


def _row(key: tuple[str, str], other: str, cards: _Read, retrieval: _Read) -> tuple[Cell, ...]:
    both = [id_ for id_ in cards.correct if id_ in retrieval.correct]
    first, second = ([float(read.correct[id_]) for id_ in both] for read in (cards, retrieval))
    found = compared(first, second)
    return (
        *(*key, other, len(both), Mean.of(first), Mean.of(second)),
        *(Mean(found.difference, found.low, found.high), found.p, found.better, found.worse),
        *(Mean.of([float(read.held[id_]) for id_ in both]) for read in (cards, retrieval)),
    )


def _chart(rows: Sequence[tuple[Cell, ...]]) -> Intervals:
    points = [Point(f"{row[1]} − {row[2]}, {row[0]}", row[6]) for row in rows if isinstance(row[6], Mean)]
    return Intervals(
        f"{len(points)} differences of score, cards less retrieval, with 95 % intervals",
        tuple(points),
        "score with cards less score with retrieval",
        reference=0.0,
    )
