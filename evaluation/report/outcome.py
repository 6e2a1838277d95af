"""What the table of a report needs of a result: all but its texts, so that a million fit into memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kcard.evaluation.runs.result import Result

__all__ = ["OF_A_TASK", "Outcome", "outcomes", "right"]

# Metrics of a whole task, and of one that is not all or nothing: what makes a single question right instead.
OF_A_TASK = {"balanced-accuracy": "accuracy", "macro-f1": "accuracy"}
BY_QUESTION = {"f1": "em", **OF_A_TASK}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question under one setting; `right`: whether its answer was accepted in full."""

    task: str
    setting: str
    id: str
    group: str
    scores: Mapping[str, float]
    right: bool
    failed: bool
    calls: int
    tokens_in: int | None
    tokens_out: int | None
    seconds: float

    def score(self, metric: str) -> float:
        """In [0, 1]; of a metric of whole tasks, that of the question: right or not. 0 where it has none."""
        if metric in self.scores:
            return self.scores[metric]
        return self.scores.get(BY_QUESTION.get(metric, ""), 0.0)


def outcomes(results: Iterable[Result], metrics: Mapping[str, str]) -> list[Outcome]:
    """Of every result; `metrics` names that of every task."""
    return [
        Outcome(
            result.task,
            result.setting,
            result.id,
            result.group,
            result.scores,
            right(result.scores, metrics[result.task]),
            bool(result.error),
            len(result.calls),
            result.tokens_in,
            result.tokens_out,
            result.seconds,
        )
        for result in results
    ]


def right(scores: Mapping[str, float], metric: str) -> bool:
    """Whether a question with these scores counts as answered."""
    return scores.get(BY_QUESTION.get(metric, metric), 0.0) >= 1.0
