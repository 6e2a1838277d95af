"""A gate between two ways of answering sends each question one way, and its own costs are counted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from kcard.api.eval_plan import EvalSetting, parse_settings
from kcard.errors import LLMError, UsageError
from kcard.gates.registry import NamedGate
from kcard.gates.self_ask import SelfAsk
from kcard.integrators.options import AskOptions, BaselineOptions
from kcard.integrators.pool_views import GateRouter
from kcard.interfaces import LLM, Answerer, Array, Gate
from kcard.llms.client import LLMClient
from kcard.types import Answer, Decision, Question, Reply, Request


class Short(Gate):
    """Short questions are popular."""

    def knows(self, questions: Sequence[Question]) -> Array:
        return np.array([1.0 if len(q.text) < 10 else 0.0 for q in questions], dtype=np.float32)


class Needy(LLM):
    def reply(self, request: Request) -> Reply:
        return Reply("Yes", yes=float("rare" in request.question))


@dataclass
class Way(Answerer):
    """Answers with its name, but fails on one question."""

    name: str
    asked: list[str] = field(default_factory=list)

    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | LLMError]:
        for question in questions:
            assert isinstance(question, Question)
            self.asked.append(question.text)
            calls = 1 + len(question.trace.calls)
            answer = Answer(question.text, self.name, self.name, Decision("always", 0.0, True), calls=calls)
            yield LLMError("no reply") if question.text == "broken" else answer


def routed() -> GateRouter:
    return GateRouter(NamedGate("popularity", Short()), Way("retrieval"), Way("genread"))


def test_each_question_goes_one_way_and_the_order_is_kept() -> None:
    questions: list[str | Question] = [
        "a rare question",
        "common",
        Question("another rare one"),
        "well",
        "common",
    ]
    found = list(routed().answers(questions))
    assert [answer.answer for answer in found] == ["retrieval", "genread", "retrieval", "genread", "genread"]
    assert [answer.gate.fired for answer in found] == [True, False, True, False, False]
    assert {answer.gate.name for answer in found} == {"popularity"}
    assert [answer.calls for answer in found] == [1] * 5


def test_what_the_gate_asks_the_llm_is_counted() -> None:
    llm = LLMClient(Needy())
    ways = GateRouter(NamedGate("self-ask", SelfAsk(llm)), Way("retrieval"), Way("genread"))
    rare, common = ways.answers(["rare", "common"])
    assert (rare.answer, common.answer) == ("retrieval", "genread")
    assert [rare.calls, common.calls] == [2, 2]


def test_a_failure_reaches_whoever_asks() -> None:
    answers = routed().answers(["common", "broken"])
    assert next(answers).answer == "genread"
    with pytest.raises(LLMError):
        next(answers)


def test_a_setting_names_both_ways_and_the_gate_between_them() -> None:
    (setting,) = parse_settings("retrieval/genread@popularity")
    assert setting.sides == (EvalSetting("retrieval"), EvalSetting("genread"))
    assert setting.options(AskOptions()).gate == "popularity"
    assert setting.uses_cards(BaselineOptions())
    assert not setting.uses_cards(BaselineOptions(corpus="texts"))
    assert EvalSetting("bottom-up@thrust").sides is None


@pytest.mark.parametrize(
    "name", ["retrieval/genread", "retrieval/@never", "a/b@never", "genread@never", "direct@x"]
)
def test_half_a_setting_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="unknown setting"):
        parse_settings(name)
