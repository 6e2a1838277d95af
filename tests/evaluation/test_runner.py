"""The runner asks what is missing, stores each result at once, and accounts for every question."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kcard.batching import MAX_FAILED_QUESTIONS
from kcard.errors import LLMError
from kcard.evaluation.runs.results import EvalResult
from kcard.evaluation.runs.run import RunPlan, RunTask
from kcard.evaluation.runs.runner import Runner, make_question, sample_ids
from kcard.evaluation.tasks.base import Item, TaskData
from kcard.integrators.baselines import BaselineAnswerer, read_jointly, written
from kcard.interfaces import LLM, Answerer
from kcard.llms.client import LLMClient
from kcard.types import Answer, Decision, Question, Reply, Request
from tests.fakes import counts_to


@dataclass
class Answering(Answerer):
    """Asks an LLM once a question; `fails` says of which text there is no answer."""

    llm: LLM
    fails: Callable[[str], bool] = lambda _: False
    batches: list[int] = field(default_factory=list)

    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | LLMError]:
        self.batches.append(len(questions))
        for question in questions:
            assert isinstance(question, Question)
            if self.fails(question.text):
                yield LLMError(f"no answer to {question.text}")
                continue
            reply = self.llm.reply(question.request("answer")).text
            choice = question.choices[0].name if question.choices else None
            yield Answer(question.text, reply, "direct", Decision("never", 1.0, False), choice=choice)


class Echo(LLM):
    def reply(self, request: Request) -> Reply:
        return Reply(request.question, tokens_in=2, tokens_out=1)


def runner(
    items: Sequence[Item],
    fails: Callable[[str], bool] = lambda _: False,
    settings: Sequence[str] = ("direct",),
) -> tuple[Runner, list[EvalResult], Answering]:
    task = TaskData("t", "em", tuple(items), "ab" * 32)
    described = RunTask("t", "t.json", task.sha256, "em", tuple(item.id for item in items), len(items))
    plan = RunPlan(("eval",), (described,), tuple(settings), "echo")
    results: list[EvalResult] = []
    llm = Echo()
    answering = Answering(LLMClient(llm), fails)
    return Runner(plan, {"t": task}, lambda _: answering, llm, results.append), results, answering


def items(count: int) -> list[Item]:
    return [Item(str(n), f"question {n}", (f"question {n}",)) for n in range(count)]


def test_every_question_has_a_result_under_each_setting_in_order() -> None:
    run, results, _ = runner(items(20), settings=("direct", "again"))
    done: list[tuple[int, int | None]] = []
    run.ask(list(run.plan.keys()), counts_to(done))
    assert [(r.setting, r.id) for r in results] == [(s, i) for _, s, i in run.plan.keys()]  # noqa: SIM118
    assert {r.scores["em"] for r in results} == {1.0}
    assert {(len(r.calls), r.tokens_in) for r in results} == {(1, 2)}
    assert done == [(n, 40) for n in range(1, 41)]


class Steps(LLM):
    """Writes a document, then fails; its prompts can be shown."""

    def reply(self, request: Request) -> Reply:
        if request.kind == "answer":
            raise LLMError("the endpoint is down")
        return Reply("a text", None, 3, 1)

    def prompt(self, request: Request) -> str:
        return f"{request.kind}: {request.question}"


def test_the_requests_of_a_question_are_stored_with_it_as_they_were_sent_failed_ones_too() -> None:
    run, results, _ = runner(items(1))
    llm = Steps()
    genread = BaselineAnswerer("genread", LLMClient(llm), written("genread", 1), read_jointly)
    replace(run, llm=llm, answerer=lambda _: genread).ask(list(run.plan.keys()))
    (result,) = results
    assert result.error == "the endpoint is down"
    assert [(c.kind, c.prompt, c.reply, c.tokens_in, c.error) for c in result.calls] == [
        ("document", "document: question 0", "a text", 3, ""),
        ("answer", "answer: question 0", "", None, "the endpoint is down"),
    ]


def test_only_what_is_missing_is_asked() -> None:
    run, results, _ = runner(items(3))
    run.ask([("t", "direct", "1")])
    assert [r.id for r in results] == ["1"]


def test_a_question_that_fails_is_a_wrong_result_with_its_error_and_costs_no_other() -> None:
    run, results, _ = runner(items(5), lambda text: text == "question 2")
    run.ask(list(run.plan.keys()))
    assert [r.error for r in results] == ["", "", "no answer to question 2", "", ""]
    assert [r.scores["em"] for r in results] == [1.0, 1.0, 0.0, 1.0, 1.0]
    assert [len(r.calls) for r in results] == [1, 1, 0, 1, 1]


def test_after_many_failures_in_a_row_the_rest_is_accounted_for_without_being_asked() -> None:
    run, results, answering = runner(items(3 * MAX_FAILED_QUESTIONS), lambda _: True)
    run.ask(list(run.plan.keys()))
    assert len(results) == 3 * MAX_FAILED_QUESTIONS
    assert all(r.error.startswith("no answer") for r in results[:MAX_FAILED_QUESTIONS])
    assert all(r.error.startswith("skipped after") for r in results[MAX_FAILED_QUESTIONS:])
    assert sum(answering.batches) == MAX_FAILED_QUESTIONS


def test_a_sample_depends_on_the_seed_and_grows_with_the_limit() -> None:
    task = TaskData("t", "em", tuple(items(100)), "ab" * 32)
    few, more = sample_ids(task, 10, seed=1), sample_ids(task, 30, seed=1)
    assert len(few) == 10
    assert set(few) < set(more)
    assert sample_ids(task, 10, seed=1) == few != sample_ids(task, 10, seed=2)
    assert list(more) == sorted(more, key=int)
    assert sample_ids(task, None, 0) == sample_ids(task, 1000, 5) == tuple(item.id for item in task.items)


def test_a_question_brings_the_demonstrations_of_its_task_the_last_ones_where_they_are_limited() -> None:
    shots = tuple(Item(f"s{n}", f"shot {n}", (str(n),)) for n in range(4))
    task = TaskData("t", "em", (items(1)[0],), "ab" * 32, {"": shots})
    assert [e.question for e in make_question(task, task.items[0], None).examples] == [
        s.question for s in shots
    ]
    assert [e.reply for e in make_question(task, task.items[0], 2).examples] == ["2", "3"]
    assert make_question(task, task.items[0], 0).examples == ()
