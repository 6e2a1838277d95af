"""Collecting records: each question answered without cards and with them, and scored both ways (SKR, section 3.1)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.answer import Answer
from kcard.errors import LLMError, UsageError
from kcard.evaluation.gates.answer_scores import METRICS, Metric
from kcard.evaluation.gates.both_ways import both_ways
from kcard.evaluation.runs.questions import put
from kcard.evaluation.tasks.registry import read_task, recognised
from kcard.evaluation.tasks.task import Item, TaskData
from kcard.integrators.batch import QuestionTotals, answer_file, earlier_lines
from kcard.integrators.pipeline import Pipeline
from kcard.question import Question
from kcard.rows import Row

if TYPE_CHECKING:
    from kcard.protocols import LLM

__all__ = ["Collection", "collect"]


@dataclass(frozen=True)
class _Recorded:
    """One question, answered twice."""

    item: Item
    without: Answer
    with_: Answer
    metric: Metric

    def to_json(self) -> Row:
        return both_ways(self.item, self.without, self.with_, self.metric)


class Collection:
    """A run of questions: `rows` of them, `done` by an earlier run. Made before any question is asked.

    questions  a file of questions with answers, or a data set in its own layout; label, group (as relation) and
               popularity are carried over
    task       the data set (kcard.evaluation.tasks); None: the one that the file says it is, else jsonl
    output     the file of records
    metric     what correct_without and correct_with are: substring, em, f1 or accuracy; all four are kept as scores.
               None: the task's own; substring for jsonl
    resume     go on with what an earlier run left in `output`
    options    those of Pipeline; the gate is always, since every question is asked with cards

    Raises UsageError for a wrong argument or file, and what Pipeline raises.
    """

    def __init__(
        self,
        questions: Path | str,
        output: Path | str,
        *,
        task: str | None = None,
        metric: Metric | None = None,
        resume: bool = False,
        **options: Any,
    ) -> None:
        if metric is not None and metric not in METRICS:
            raise UsageError(f"metric {metric!r} is unknown: choose one of {', '.join(METRICS)}")
        if options.get("mode") == "direct" or "gate" in options:
            raise UsageError("records need answers with cards: leave out mode direct and gate")
        self.output, path = Path(output).expanduser(), Path(questions).expanduser()
        if path.resolve() == self.output.resolve():
            raise UsageError(f"--output {output} is the questions file: name another, or it would be lost")
        task = task or recognised(path)
        self._task = read_task(task, path)
        self._metric = metric or _metric(task, self._task)
        self._items = _distinct(self._task.items)
        self.rows = [_row(item, self._metric) for item in self._items.values()]
        self._earlier = earlier_lines(self.rows, self.output, resume)
        self.done = sum("error" not in line for line in self._earlier)
        self._with = Pipeline(**options, gate="always")
        shared = {key: options[key] for key in ("examples", "report", "concurrency") if key in options}
        self._without = Pipeline(mode="direct", llm=self.llm, **shared)

    @property
    def llm(self) -> "LLM":
        return self._with.llm

    def run(self, report: Callable[[int], None] | None = None) -> QuestionTotals:
        """Ask what is missing; each record is on disk before the next question is asked.

        A question that fails becomes a line with its error, which resuming asks again. Raises LLMError after many
        failures in a row.
        """
        return answer_file(self.rows, self.output, self._outcomes, report, self._earlier, self._with.batch)

    def _outcomes(self, questions: Sequence[str | Question]) -> Iterator[_Recorded | LLMError]:
        items = [self._items[Question(q) if isinstance(q, str) else q] for q in questions]
        asked = [put(self._task, item, None) for item in items]
        ways = zip(items, self._without.outcomes(asked), self._with.outcomes(asked), strict=True)
        for item, without, with_ in ways:
            if isinstance(without, LLMError):
                yield without
            elif isinstance(with_, LLMError):
                yield with_
            else:
                yield _Recorded(item, without, with_, self._metric)


def collect(
    questions: Path | str,
    output: Path | str,
    *,
    task: str | None = None,
    metric: Metric | None = None,
    resume: bool = False,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> QuestionTotals:
    """Write records of how an LLM answers without cards and with them: the Python twin of `kcard gate collect`.

    Arguments are those of Collection; `progress` is called with how many questions are done.
    """
    return Collection(questions, output, task=task, metric=metric, resume=resume, **options).run(progress)


def _metric(task: str, data: TaskData) -> Metric:
    """The metric of a record's correctness: the task's; its balanced accuracy is over records, theirs is accuracy."""
    if task == "jsonl" and data.metric != "accuracy":
        return "substring"
    return next((name for name in METRICS if name == data.metric), "accuracy")


def _distinct(items: Sequence[Item]) -> dict[Question, Item]:
    """Each question once, since no gate could tell equal ones apart; the answers of all are accepted."""
    found: dict[Question, Item] = {}
    for item in items:
        first = found.setdefault(Question(item.question, item.choices), item)
        if first is not item:
            answers = tuple(dict.fromkeys([*first.answers, *item.answers]))
            found[Question(item.question, item.choices)] = replace(first, answers=answers)
    return found


def _row(item: Item, metric: Metric) -> Row:
    """A question without answers as yet, with what the task says of it."""
    choices = {choice.name: choice.description for choice in item.choices}
    beside = {"choices": choices, "label": item.label, "relation": item.group}
    popularity = {} if item.popularity is None else {"popularity": item.popularity}
    carried = {key: value for key, value in beside.items() if value} | popularity
    return {"question": item.question, "answers": list(item.answers), **carried, "metric": metric}
