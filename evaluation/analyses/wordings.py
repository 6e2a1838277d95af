"""How far the wordings agree that ask the LLM whether it needs more (Knowledge Card, appendix and figure 7)."""

from collections.abc import Iterable, Mapping
from itertools import combinations

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis, Cell
from kcard.evaluation.charts.chart import Intervals, Point
from kcard.evaluation.record import Mean
from kcard.evaluation.runs.result import Call, Result
from kcard.llms.wordings import NEED
from kcard.llms.yes_no import from_text

__all__ = ["wordings"]

Key = tuple[str, str]  # task and setting
Votes = dict[int, bool]  # whether more is needed, by wording


def wordings(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """The share of questions on which all wordings agree, and every two of them; the first time that each was asked.

    A reply that is neither yes nor no counts as a need, as it does for gates. Raises UsageError where no question was
    asked in two wordings.
    """
    del metrics
    found: dict[Key, list[Votes]] = {}
    for result in results:
        votes = _votes(result.calls)
        if len(votes) > 1:
            found.setdefault((result.task, result.setting), []).append(votes)
    if not found:
        raise UsageError(
            "no question of this run was asked in several wordings: run a setting with an ensemble, such as "
            "top-down@self-ask-ensemble"
        )
    unanimous = {
        key: [float(len(set(votes.values())) == 1) for votes in asked] for key, asked in found.items()
    }
    return Analysis(
        "wordings",
        "Agreement of the yes/no questions",
        "The share of questions on which the LLM says the same to every wording, and to every two of them, with 95 % "
        "intervals. Where they disagree, the majority decides.",
        ("task", "setting", "wordings", "questions", "agree"),
        tuple(
            row
            for key, asked in found.items()
            for row in (
                (*key, "all", len(asked), Mean.of(unanimous[key])),
                *((*key, *pair) for pair in _pairs(asked)),
            )
        ),
        (
            Intervals(
                "share of questions on which all wordings agree; the numbers are in the table",
                tuple(
                    Point(f"{setting} on {task}", mean)
                    for (task, setting), values in unanimous.items()
                    if (mean := Mean.of(values))
                ),
                "share of questions on which all wordings agree",
            ),
        ),
    )


def _pairs(asked: Iterable[Votes]) -> list[tuple[Cell, ...]]:
    agree: dict[tuple[int, int], list[float]] = {}
    for votes in asked:
        for one, other in combinations(sorted(votes), 2):
            agree.setdefault((one, other), []).append(float(votes[one] == votes[other]))
    return [
        (f"{NEED[one].ask} / {NEED[other].ask}", len(values), Mean.of(values))
        for (one, other), values in sorted(agree.items())
    ]


def _votes(calls: Iterable[Call]) -> Votes:
    votes: Votes = {}
    for call in calls:
        if call.kind == "need" and not call.error and (wording := _wording(call.prompt)) is not None:
            yes = NEED[wording].needed(from_text(call.reply))
            votes.setdefault(wording, yes is None or yes > 0.5)
    return votes


def _wording(prompt: str) -> int | None:
    """The wording that the prompt ends with; earlier ones stand in examples and in the transcript."""
    last = max(range(len(NEED)), key=lambda i: prompt.rfind(NEED[i].ask))
    return last if NEED[last].ask in prompt else None
