"""Collect records for gates: answer each question without and with cards, and score both answers (SKR, section 3.1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kcard.errors import KcardError, UsageError
from kcard.evaluation.gates.outcome import METRICS, Metric
from kcard.evaluation.metrics import accuracy, substring
from kcard.evaluation.runs.runner import make_question, sample_ids
from kcard.evaluation.tasks.base import Item, read_task, recognise_task
from kcard.events import OnEvent, ignore
from kcard.gates.records import RECALL
from kcard.integrators.batch_files import QuestionTotals, answer_file, earlier_lines
from kcard.integrators.options import AskOptions, Paper
from kcard.integrators.pipeline import Pipeline
from kcard.io import Row
from kcard.types import Answer, Question

if TYPE_CHECKING:
    from kcard.cards.models.loader import Loader
    from kcard.hub.registry import Hub
    from kcard.interfaces import LLM, Evidence

SCORE_DIGITS = 6


@dataclass(frozen=True)
class _RecordedQuestion:
    """One question, answered twice."""

    item: Item
    without: Answer
    with_: Answer
    metric: Metric

    def to_json(self) -> Row:
        """Return a record as `read_records` reads it, without the question itself.

        Its scores are every metric of both answers, their calls, seconds and (if known) tokens, and recall@1 if there
        is a passage.
        """
        record: Row = {}
        scores: dict[str, float] = {}
        costs: dict[str, float] = {}
        for way, answer in (("without", self.without), ("with", self.with_)):
            by_metric = _score(self.item, answer)
            record[f"correct_{way}"] = by_metric[self.metric]
            # The letter of the chosen option; without options, or if none was chosen, the text.
            record[f"answer_{way}"] = (self.item.choices and answer.choice) or answer.answer
            scores |= {f"{name}_{way}": score for name, score in by_metric.items()}
            costs |= {f"calls_{way}": answer.calls, f"seconds_{way}": round(answer.seconds, 4)}
            usage = answer.usage
            if usage is not None and usage.tokens_in is not None and usage.tokens_out is not None:
                costs[f"tokens_{way}"] = usage.tokens_in + usage.tokens_out
        # recall@1 of the first passage that the LLM read; if it read none, of the first candidate.
        recall: dict[str, float] = {}
        passages = sorted(self.with_.passages, key=lambda passage: not passage.kept)
        if passages:
            options = {choice.name: choice.description for choice in self.item.choices}
            accepted = [options.get(right, right) for right in self.item.answers]
            recall[RECALL] = float(substring(passages[0].text, accepted))
        return {**record, "scores": scores | costs | recall, "calls": self.without.calls + self.with_.calls}


def _score(item: Item, answer: Answer) -> dict[Metric, float]:
    """Return every metric of an answer; for multiple choice, each is whether the right option was chosen."""
    if item.choices:
        return dict.fromkeys(METRICS, accuracy(answer.choice or "", item.answers))
    return {name: round(score(answer.answer, item.answers), SCORE_DIGITS) for name, score in METRICS.items()}


class Collection:
    """A run over questions: `rows`, of which an earlier run answered `done`. No question is asked before `run`.

    questions  a file of questions with answers, or a data set in its own layout; label, group (as relation) and
               popularity are copied to the records
    task       the data set (kcard.evaluation.tasks); None: recognised from the file, else jsonl
    output     the file of records
    metric     the metric of correct_without and correct_with: substring, em, f1 or accuracy; all four are stored as
               scores. None: the task's own; substring for jsonl
    limit      the number of questions, drawn with the seed; None: all
    resume     continue an earlier run in `output`
    options    and what follows: those of Pipeline, options of AskOptions by name included; the gate is "always", since
               every question is asked with cards

    Raises UsageError for a wrong argument or file, and what Pipeline raises.
    """

    def __init__(
        self,
        questions: Path | str,
        output: Path | str,
        *,
        task: str | None = None,
        metric: Metric | None = None,
        limit: int | None = None,
        resume: bool = False,
        options: AskOptions | None = None,
        preset: Paper | None = None,
        hub: "Hub | None" = None,
        on_event: OnEvent = ignore,
        loader: "Loader | None" = None,
        retriever: "Evidence | None" = None,
        **changes: Any,
    ) -> None:
        if metric is not None and metric not in METRICS:
            raise UsageError(f"metric {metric!r} is unknown: choose one of {', '.join(METRICS)}")
        if changes.get("mode", options and options.mode) == "direct" or "gate" in changes:
            raise UsageError("records need answers with cards: leave out mode direct and gate")
        self.output, path = Path(output).expanduser(), Path(questions).expanduser()
        if path.resolve() == self.output.resolve():
            raise UsageError(f"--output {output} is the questions file: name another, or it would be lost")
        task = task or recognise_task(path)
        self._task = read_task(task, path)
        # The task's metric; balanced accuracy is defined over many records, so that of one record is accuracy.
        if metric is None:
            metric = "accuracy"
            if task == "jsonl" and self._task.metric != "accuracy":
                metric = "substring"
            elif self._task.metric in METRICS:
                metric = cast("Metric", self._task.metric)
        self._metric = metric
        # Each distinct question once, since no gate could distinguish equal ones; the answers of all are accepted.
        seed = changes.get("seed", options.seed if options else 0)
        drawn = set(sample_ids(self._task, limit, seed))
        self._items: dict[Question, Item] = {}
        for item in self._task.items:
            if item.id not in drawn:
                continue
            question = Question(item.question, item.choices)
            first = self._items.setdefault(question, item)
            if first is not item:
                answers = tuple(dict.fromkeys([*first.answers, *item.answers]))
                self._items[question] = replace(first, answers=answers)
        # The rows of the questions, with what the task says of each.
        self.rows: list[Row] = []
        for item in self._items.values():
            row: Row = {"question": item.question, "answers": list(item.answers)}
            if item.choices:
                row["choices"] = {choice.name: choice.description for choice in item.choices}
            if item.label:
                row["label"] = item.label
            if item.group:
                row["relation"] = item.group
            if item.popularity is not None:
                row["popularity"] = item.popularity
            row["metric"] = metric
            self.rows.append(row)
        self._earlier = earlier_lines(self.rows, self.output, resume)
        self.done = sum("error" not in line for line in self._earlier)
        changes["gate"] = "always"
        places: dict[str, Any] = {"hub": hub, "on_event": on_event, "loader": loader}
        self._with = Pipeline(options, preset=preset, retriever=retriever, **places, **changes)
        shared = self._with.options
        self._without = Pipeline(
            mode="direct",
            llm=self.llm,
            examples=shared.examples,
            concurrency=shared.concurrency,
            on_event=on_event,
        )

    @property
    def llm(self) -> "LLM":
        return self._with.llm

    def run(self, on_event: OnEvent = ignore) -> QuestionTotals:
        """Ask the questions that are missing; each record is on disk before the next question is asked.

        A question that fails becomes a line with its error, and is asked again on resuming. Raises LLMError after many
        consecutive failures.
        """
        return answer_file(self.rows, self.output, self._outcomes, on_event, self._earlier, self._with.batch)

    def _outcomes(self, questions: Sequence[str | Question]) -> Iterator[_RecordedQuestion | KcardError]:
        items = []
        for question in questions:
            key = Question(question) if isinstance(question, str) else question
            items.append(self._items[key])
        # Each pipeline gets questions of its own, since a question carries the trace of its answer.
        without_cards = self._without.outcomes([make_question(self._task, item, None) for item in items])
        with_cards = self._with.outcomes([make_question(self._task, item, None) for item in items])
        for item, without, with_ in zip(items, without_cards, with_cards, strict=True):
            if isinstance(without, KcardError):
                yield without
            elif isinstance(with_, KcardError):
                yield with_
            else:
                yield _RecordedQuestion(item, without, with_, self._metric)


def collect(
    questions: Path | str, output: Path | str, *, on_event: OnEvent = ignore, **arguments: Any
) -> QuestionTotals:
    """Collect records of an LLM's answers without cards and with them; `kcard gate collect` does the same.

    `on_event` is called with the number of finished questions (kind asking); the other arguments are those of
    Collection.
    """
    return Collection(questions, output, **arguments).run(on_event)
