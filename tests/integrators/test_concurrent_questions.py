"""Several requests at a time: the same answers in the same order, and a failure costs its own question only."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
import pytest

from kcard.errors import LLMError, QuestionsFailed
from kcard.gates.self_ask import SelfAsk, SelfAskEnsemble
from kcard.integrators.baselines import BaselineAnswerer, JointReading, SampledReplies
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.citations import Context
from kcard.integrators.pipeline import Pipeline
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import AutoChoice, ExplicitChoice, TopDown
from kcard.interfaces import LLM, Array
from kcard.llms.client import LLMClient
from kcard.selectors.factuality import Unchecked
from kcard.selectors.pruning import Unpruned
from kcard.types import Answer, Choice, Example, Passage, Reply, Request, Sampling

QUESTIONS = [f"question {n}" for n in range(12)]


CARDS = (Choice("moons", "moons of planets"), Choice("races", "elections"))


class First:
    """Relevance that likes the first text best."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        del question
        return np.arange(len(texts), dtype=np.float32) * np.float32(-0.01)


class Writes:
    """A step in which each card writes a note that is kept."""

    selectors = Selectors(First(), Unpruned(), Unchecked(), {})

    def run(
        self, questions: Sequence[str], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Context]:
        del sampling
        return [
            Context(tuple(Passage(name, f"{name} on {question}", kept=True) for name in names))
            for question, names in zip(questions, cards, strict=True)
        ]


class Slow:
    """Takes longer for earlier questions; fails at those that it is told to. Counts what runs at a time."""

    def __init__(self, fails: Sequence[str] = ()) -> None:
        self.fails, self.lock, self.running, self.most = set(fails), Lock(), 0, 0
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        with self.lock:
            self.requests.append(request)
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(0.002 * (12 - int(request.question.split()[-1])))
        with self.lock:
            self.running -= 1
        if request.question in self.fails:
            raise LLMError(f"{request.question} is down")
        if request.kind == "choose":
            return Reply(request.choices[0].name)
        return Reply(f"{request.kind} {request.question}", 1.0 if request.kind == "need" else None, 5, 2)


class Batched(Slow):
    """The same as an LLM that takes batches."""

    def __init__(self, fails: Sequence[str] = ()) -> None:
        super().__init__(fails)
        self.sizes: list[int] = []

    def reply_all(self, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        self.sizes.append(len(requests))
        for request in requests:
            try:
                yield self.reply(request)
            except LLMError as error:
                yield error


def told(outcomes: Sequence[Answer | LLMError]) -> list[Any]:
    """What does not depend on the clock."""
    return [
        str(o)
        if isinstance(o, LLMError)
        else replace(
            o,
            seconds=0.0,
            usage=None if o.usage is None else replace(o.usage, llm_seconds=0.0, card_seconds=0.0),
        )
        for o in outcomes
    ]


@pytest.mark.parametrize("make", [Slow, Batched])
@pytest.mark.parametrize("concurrency", [3, 8, 50])
def test_answers_and_their_order_do_not_depend_on_concurrency(make: type[Slow], concurrency: int) -> None:
    fails = (QUESTIONS[3], QUESTIONS[7])
    one = told(list(Pipeline(mode="direct", llm=make(fails), concurrency=1).outcomes(QUESTIONS)))
    many = told(list(Pipeline(mode="direct", llm=make(fails), concurrency=concurrency).outcomes(QUESTIONS)))
    assert many == one
    assert [n for n, outcome in enumerate(one) if isinstance(outcome, str)] == [3, 7]


def test_so_many_requests_are_in_flight_and_each_is_made_once() -> None:
    llm = Slow()
    Pipeline(mode="direct", llm=llm, concurrency=4)(QUESTIONS)
    assert llm.most == 4
    assert len(llm.requests) == len(QUESTIONS)


def test_an_llm_that_takes_batches_gets_batches_and_no_threads() -> None:
    llm = Batched()
    Pipeline(mode="direct", llm=llm, concurrency=5)(QUESTIONS)
    assert llm.sizes == [5, 5, 2]
    assert llm.most == 1


def test_the_backend_says_how_many_requests_it_takes_where_nobody_else_does() -> None:
    llm = Slow()
    assert Pipeline(mode="direct", llm=llm).concurrency == 1
    llm.concurrency = 4  # type: ignore[attr-defined]
    assert Pipeline(mode="direct", llm=llm).concurrency == 4
    assert Pipeline(mode="direct", llm=llm, concurrency=2).concurrency == 2


@pytest.mark.parametrize("gate", [SelfAsk, SelfAskEnsemble])
def test_the_gate_asks_about_several_questions_at_a_time(gate: Any) -> None:
    llm = Slow()
    metered = LLMClient(llm, 4)
    scores = gate(metered).knows(QUESTIONS)
    assert np.array_equal(scores, np.zeros(len(QUESTIONS)))
    assert llm.most == 4
    assert metered.close(QUESTIONS[0]).calls == len(llm.requests) // len(QUESTIONS)


def test_where_the_gate_fails_on_a_question_the_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Slow(fails=QUESTIONS[2:4])
    pipeline = Pipeline(mode="direct", llm=llm, concurrency=3)
    gate = SelfAsk(pipeline._client)
    monkeypatch.setattr(type(pipeline._gate.gate), "knows", lambda _, questions: gate.knows(questions))
    outcomes = list(pipeline.outcomes(QUESTIONS))
    assert [n for n, o in enumerate(outcomes) if isinstance(o, LLMError)] == [2, 3]
    needs = [r.question for r in llm.requests if r.kind == "need"]
    assert sorted(needs) == sorted(QUESTIONS), "what failed, and what did not, was asked once"


def test_failures_name_their_questions() -> None:
    metered = LLMClient(Slow(fails=QUESTIONS[:2]), 3)
    with pytest.raises(QuestionsFailed, match="question 0 is down") as caught:
        SelfAsk(metered).knows(QUESTIONS)
    assert set(caught.value.failures) == set(QUESTIONS[:2])


def test_answers_raises_in_the_place_of_the_failure_and_keeps_what_else_came() -> None:
    llm = Slow(fails=[QUESTIONS[1]])
    pipeline = Pipeline(mode="direct", llm=llm, concurrency=12)
    answers = pipeline.answers(QUESTIONS)
    assert next(answers).question == QUESTIONS[0]
    with pytest.raises(LLMError, match="question 1 is down"):
        next(answers)
    time.sleep(0.1)
    llm.fails.clear()
    before = len(llm.requests)
    assert len(pipeline(QUESTIONS[1:])) == 11
    assert [r.question for r in llm.requests[before:]] == [QUESTIONS[1]]


@pytest.mark.parametrize("select", ["auto", "explicit"])
def test_top_down_asks_about_several_questions_at_a_time(
    select: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("need", "what" if select == "auto" else "choose")
    told_by: dict[int, list[Any]] = {}
    for concurrency in (1, 6):
        llm = Slow(fails=QUESTIONS[4:5])
        pipeline = Pipeline(mode="direct", llm=llm, concurrency=concurrency)
        choice = AutoChoice(CardRanker(First(), CARDS)) if select == "auto" else ExplicitChoice(CARDS)
        integrator = TopDown(Writes(), Sampling(), pipeline._client, choice, len(CARDS), max_iterations=2)
        monkeypatch.setattr(pipeline, "_integrator", integrator)
        monkeypatch.setattr(type(pipeline._gate.gate), "knows", lambda _, questions: [0.0] * len(questions))
        told_by[concurrency] = told(list(pipeline.outcomes(QUESTIONS)))
        assert llm.most == concurrency
        assert {kind for kind in kinds if any(r.kind == kind for r in llm.requests)} == set(kinds)
    assert told_by[1] == told_by[6]
    assert [n for n, outcome in enumerate(told_by[6]) if isinstance(outcome, str)] == [4]


class Notes:
    """A source of three notes of the LLM's own."""

    def passages(
        self, llm: LLM, questions: Sequence[str], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        return SampledReplies("notes", Request("recite", ""), 3, 1.0).passages(llm, questions, examples)


@pytest.mark.parametrize("make", [Slow, Batched])
def test_baselines_ask_about_several_questions_at_a_time_and_never_more_requests(make: type[Slow]) -> None:
    found: dict[int, list[Any]] = {}
    for concurrency in (1, 4):
        llm = make(QUESTIONS[5:6])
        baseline = BaselineAnswerer("notes", LLMClient(llm, concurrency), Notes(), JointReading())
        found[concurrency] = told(list(baseline.outcomes(QUESTIONS)))
        assert llm.most == (concurrency if make is Slow else 1)
    assert found[1] == found[4]
    assert [n for n, outcome in enumerate(found[4]) if isinstance(outcome, str)] == [5]
