"""The pipeline as a library: pieces of an answer, its cost, what a failure leaves, without a card."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from kcard.errors import LLMError, UsageError
from kcard.integrators.citations import Context
from kcard.integrators.pipeline import Pipeline
from kcard.integrators.pool_views import Selectors
from kcard.interfaces import Array, Pair
from kcard.offline.llm import EmbeddedLLM
from kcard.selectors.pruning import Extractive
from kcard.selectors.relevance import MiniLMRelevance
from kcard.types import Answer, Passage, Reply, Request
from tests.conftest import Served


class Speaker:
    """Answers with the question in capitals, and how many passages it read; fails at what it is told to."""

    def __init__(self, fails: Sequence[str] = ()) -> None:
        self.window: int | None = None
        self.fails = list(fails)
        self.asked: list[str] = []

    def count(self, request: Request) -> int:
        return len(request.knowledge)

    def reply(self, request: Request) -> Reply:
        self.asked.append(request.question)
        if request.question in self.fails:
            self.fails.remove(request.question)
            raise LLMError("down")
        return Reply(f"{request.question.upper()} {len(request.knowledge)}", None, 7, 3)

    def stream(self, request: Request) -> Iterator[str | Reply]:
        reply = self.reply(request)
        yield from reply.text.split()
        yield reply


def test_an_answer_comes_in_pieces_and_then_as_a_whole() -> None:
    *pieces, answer = Pipeline(mode="direct", llm=Speaker()).stream("who")
    assert pieces == ["WHO", "0"]
    assert isinstance(answer, Answer)
    assert (answer.answer, answer.calls) == ("WHO 0", 1)


def test_an_answer_tells_its_cost_as_far_as_it_is_known() -> None:
    (known,) = Pipeline(mode="direct", llm=Speaker())(["who"])
    assert known.usage is not None
    assert (known.usage.tokens_in, known.usage.tokens_out) == (7, 3)
    assert set(known.to_json()["usage"]) == {"tokens_in", "tokens_out", "llm_seconds", "card_seconds"}
    (unknown,) = Pipeline(mode="direct", llm=EmbeddedLLM())(["What is the capital of France?"])
    assert "usage" not in unknown.to_json()
    assert unknown.usage is not None
    assert 0 < unknown.usage.llm_seconds <= unknown.seconds


def test_answers_come_one_by_one_and_a_failure_costs_none_of_those_before() -> None:
    llm = Speaker(fails=["b"])
    pipeline = Pipeline(mode="direct", llm=llm)
    answers = pipeline.answers(["a", "b", "c"])
    assert next(answers).answer == "A 0"
    with pytest.raises(LLMError):
        next(answers)
    assert [a.answer for a in pipeline(["b", "c"])] == ["B 0", "C 0"]
    assert llm.asked == ["a", "b", "b", "c"]


def test_equal_questions_of_one_call_are_answered_once() -> None:
    llm = Speaker()
    assert len(Pipeline(mode="direct", llm=llm)(["a", "a"])) == 2
    assert llm.asked == ["a"]


class Support:
    def support(self, pairs: Sequence[Pair]) -> Array:
        return np.zeros(len(pairs), dtype=np.float32)


class Three:
    """Gathers three kept passages and one that is not."""

    selectors = Selectors(MiniLMRelevance(), Extractive(), Support(), {})

    def gather(self, questions: Sequence[str]) -> list[Context]:
        kept = [Passage("moons", f"note {i}", kept=i < 3) for i in range(4)]
        return [Context(tuple(kept)) for _ in questions]


def test_a_passage_that_did_not_fit_is_not_said_to_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Speaker()
    llm.window = 2
    pipeline = Pipeline(mode="direct", llm=llm)
    monkeypatch.setattr(pipeline, "_integrator", Three())
    monkeypatch.setattr(type(pipeline._gate.gate), "knows", lambda _, questions: [0.0] * len(questions))
    (answer,) = pipeline(["who"])
    assert answer.answer == "WHO 2"
    assert [p.kept for p in answer.passages] == [True, True, False, False]
    assert "1 of 3 passages" in answer.notes[0]


def test_a_question_of_100_kilobytes_is_answered_and_the_cut_is_told() -> None:
    question = "What is the capital of France? " + "And so on. " * 9000
    (answer,) = Pipeline(mode="direct", llm=EmbeddedLLM())([question])
    assert answer.answer
    assert answer.question == question
    assert "left out: the question after its first" in answer.notes[0]


def test_a_question_that_is_longer_than_cards_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(mode="direct", llm=Speaker())
    monkeypatch.setattr(pipeline, "_integrator", Three())
    monkeypatch.setattr(type(pipeline._gate.gate), "knows", lambda _, questions: [0.0] * len(questions))
    short, long = pipeline(["who " * 100, "who " * 400])
    assert short.notes == ()
    assert "cards and the sentence encoder read about 256" in long.notes[0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"floor": 1.5}, "floor"),
        ({"floor": -0.1}, "floor"),
        ({"min_factuality": 1.1}, "min-factuality"),
        ({"mode": "sideways"}, "hybrid"),
        ({"card_temperature": -1.0}, "temperature"),
        ({"evidence": ["none", "own"]}, "none"),
        ({"n2": 0}, "n2"),
        ({"llm": "openai:x", "llm_url": "http://127.0.0.1:9/v1", "retries": -1}, "retries"),
        ({"llm": "openai:x", "llm_url": "http://127.0.0.1:9/v1", "llm_window": 5}, "llm-window"),
    ],
)
def test_a_wrong_argument_is_named(options: dict[str, object], named: str, tmp_path: Path) -> None:
    del tmp_path
    with pytest.raises(UsageError, match=named):
        Pipeline(**{"mode": "direct", **options})  # type: ignore[arg-type]


def test_an_endpoint_that_hangs_is_given_up_after_its_time(serve: Callable[..., Served]) -> None:
    server = serve({"text": "late", "delay": 30})
    started = time.monotonic()
    with pytest.raises(LLMError, match="time"):
        Pipeline(llm="openai:slow", llm_url=server.url, llm_timeout=0.3, retries=0, mode="direct")(["Who?"])
    assert time.monotonic() - started < 15
