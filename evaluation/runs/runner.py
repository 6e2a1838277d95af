"""Asks the questions of a run, setting by setting; each result is stored before the next question is asked.

It knows ways of answering, tasks and a store by their protocols only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from kcard.answer import Answer
from kcard.batches import QUESTIONS, batched
from kcard.errors import KcardError, LLMError, one_line
from kcard.evaluation.runs.recorder import Recorder
from kcard.evaluation.runs.result import Result
from kcard.evaluation.runs.run import Run
from kcard.evaluation.runs.scoring import answered, failed
from kcard.evaluation.tasks.task import Item, TaskData
from kcard.protocols import Answerer
from kcard.question import Question, distinct_texts

__all__ = ["Runner", "Store"]

GIVE_UP = 16  # so many failures in a row are the endpoint's, not the questions'
NOT_ASKED = f"not asked, because {GIVE_UP} questions before it failed in a row"

Key = tuple[str, str, str]
Asked = tuple[Question, Item]


class Store(Protocol):
    """Where results are kept."""

    def append(self, run: Run, results: Sequence[Result]) -> None:
        """Keep results, all or none; one of the same question and setting is replaced."""
        ...


@dataclass(frozen=True)
class Runner:
    """A run that is ready to be asked.

    tasks     the run's tasks by name
    question  a task's item as it is put, with choices and demonstrations
    answerer  the way of answering of a setting, made when its turn comes
    recorder  the LLM that all of them ask
    batch     how many questions are put at a time
    """

    run: Run
    tasks: Mapping[str, TaskData]
    question: Callable[[TaskData, Item], Question]
    answerer: Callable[[str], Answerer]
    recorder: Recorder
    store: Store
    batch: int = QUESTIONS

    def ask(self, missing: Sequence[Key], report: Callable[[int], None] | None = None) -> None:
        """Ask these questions; `report` is called with how many are done.

        A question that fails becomes a result with its error. After GIVE_UP failures in a row the rest of the run is
        not asked: each question becomes a result that says so, to be asked by resuming.
        """
        done, streak = 0, 0
        for task, setting, asked in self._groups(missing):
            given_up = streak >= GIVE_UP
            refused = (failed(task, setting, item, NOT_ASKED, ()) for _, item in asked)
            for result in refused if given_up else self._answered(task, setting, asked):
                self.store.append(self.run, [result])
                done, streak = done + 1, streak + 1 if result.error else 0
                if report:
                    report(done)

    def _groups(self, missing: Sequence[Key]) -> Iterator[tuple[str, str, list[Asked]]]:
        """The missing questions of each task and setting, in the order of the run, so many at a time.

        No text occurs twice in a group, because the text tells whose a request to the LLM is.
        """
        for task, setting, items in self._parts(missing):
            for chunk in batched(items, self.batch):
                questions = [self.question(self.tasks[task], item) for item in chunk]
                rest = zip(questions, chunk, strict=True)
                for group in distinct_texts(questions):
                    yield task, setting, list(islice(rest, len(group)))

    def _parts(self, missing: Sequence[Key]) -> Iterator[tuple[str, str, list[Item]]]:
        """The missing questions of each task and setting, in the order of the run."""
        wanted = set(missing)
        for task in self.run.plan.tasks:
            by_id = {item.id: item for item in self.tasks[task.name].items}
            for setting in self.run.plan.settings:
                items = [by_id[i] for i in task.ids if (task.name, setting, i) in wanted]
                if items:
                    yield task.name, setting, items

    def _answered(
        self, task: str, setting: str, asked: Sequence[Asked], later: Sequence[str] = ()
    ) -> Iterator[Result]:
        """Where an answerer raises, the rest is asked one by one, so that one bad question does not cost the others.

        One with `outcomes`, such as Pipeline, yields an error in place of an answer instead. `later`: questions that
        are asked after these.
        """
        answerer = self.answerer(setting)
        ask: Callable[[Sequence[Question]], Iterator[Answer | KcardError]]
        ask = getattr(answerer, "outcomes", answerer.answers)
        outcomes: Iterator[Answer | KcardError] | None = None
        for nth, (question, item) in enumerate(asked):
            waiting = [*(other.text for other, _ in asked[nth + 1 :]), *later]
            try:
                if outcomes is None:
                    outcomes = iter(ask([q for q, _ in asked]))
                outcome = next(outcomes)
            except StopIteration:
                raise LLMError(f"setting {setting} answered {nth} of {len(asked)} questions") from None
            except KcardError as error:
                if len(asked) > 1:
                    for at, other in enumerate(asked[nth:], nth + 1):
                        yield from self._answered(
                            task, setting, [other], [*(q.text for q, _ in asked[at:]), *later]
                        )
                    return
                outcome = error
            calls = self.recorder.collect(question.text, waiting)
            if isinstance(outcome, KcardError):
                yield failed(task, setting, item, one_line(outcome), calls)
            else:
                yield answered(task, setting, item, outcome, calls)
