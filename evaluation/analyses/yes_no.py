"""Whether the LLM needed the information that it asked for (Knowledge Card, section 5 and figure 6)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.charts.chart import Heat
from kcard.evaluation.record import Mean
from kcard.evaluation.report.outcome import right
from kcard.evaluation.runs.result import Result

__all__ = ["yes_no"]

UNDECIDED = {"always", "never"}  # gates that say the same of every question
ALONE = "direct"

Key = tuple[str, str, str]  # task, setting and gate


@dataclass
class _Decisions:
    """By question: whether the gate sought knowledge, and whether the setting's answer was right."""

    found: dict[str, tuple[bool, bool]] = field(default_factory=dict)

    def count(self, yes: bool, correct: bool) -> int:
        return sum(decision == (yes, correct) for decision in self.found.values())


def yes_no(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """How often a gate said yes or no, and how often the answer was then right.

    Over-asking is a yes where the LLM alone is right, under-asking a no where it is wrong, as shares of the questions
    that the setting `direct` was asked too. Questions that failed are left out. Raises UsageError where no gate
    decided anything.
    """
    decisions: dict[Key, _Decisions] = {}
    alone: dict[tuple[str, str], bool] = {}
    for result in results:
        if result.error:
            continue
        correct = right(result.scores, metrics[result.task])
        if result.setting == ALONE:
            alone[result.task, result.id] = correct
        gate = result.trace.get("gate")
        if isinstance(gate, dict) and gate.get("name") not in UNDECIDED:
            key = result.task, result.setting, str(gate.get("name"))
            decisions.setdefault(key, _Decisions()).found[result.id] = bool(gate.get("fired")), correct
    if not decisions:
        raise UsageError("no gate decided anything in this run: run a setting with one, such as top-down")
    return Analysis(
        "yes-no",
        "Yes, no and correctness",
        "Yes: the gate sought knowledge; with a self-ask gate, the LLM said that it needs more. Over-asking and "
        "under-asking compare with what the LLM answers alone, on the questions that the setting direct was asked.",
        (
            *("task", "setting", "gate", "questions", "yes, right", "yes, wrong", "no, right", "no, wrong"),
            *("over-asking", "under-asking"),
        ),
        tuple((*key, *_row(key[0], found, alone)) for key, found in decisions.items()),
        tuple(_heat(key, found) for key, found in decisions.items()),
    )


def _row(
    task: str, decisions: _Decisions, alone: Mapping[tuple[str, str], bool]
) -> Sequence[int | Mean | None]:
    counts = [decisions.count(yes, correct) for yes in (True, False) for correct in (True, False)]
    both = [(yes, alone[task, id_]) for id_, (yes, _) in decisions.found.items() if (task, id_) in alone]
    over = Mean.of([float(yes and correct) for yes, correct in both])
    under = Mean.of([float(not yes and not correct) for yes, correct in both])
    return [len(decisions.found), *counts, over, under]


def _heat(key: Key, decisions: _Decisions) -> Heat:
    task, setting, gate = key
    total = len(decisions.found)
    return Heat(
        f"shares of {total} questions of {task} by what {gate} said under {setting} and whether the answer was right",
        ("yes", "no"),
        ("right", "wrong"),
        tuple(
            tuple(decisions.count(yes, correct) / total for correct in (True, False)) for yes in (True, False)
        ),
        f"{task}, {setting}: {gate} and correctness",
    )
