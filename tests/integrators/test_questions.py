"""A question's options and demonstrations reach the LLM, and its choice comes back as letter and text."""

from collections.abc import Sequence

import numpy as np
import pytest

from kcard.errors import UsageError
from kcard.integrators.pipeline import Pipeline
from kcard.interfaces import Array
from kcard.offline.llm import EmbeddedLLM
from kcard.types import Choice, Example, Question, Reply, Request, checked, distinct_texts

ANN_BEN = (Choice("A", "Ann"), Choice("B", "Ben"))
BEN_ANN = (Choice("A", "Ben"), Choice("B", "Ann"))


class Says:
    """Replies with these in turn, the last one again and again."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        return Reply(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])


def test_the_answer_carries_the_letter_and_the_text_of_the_chosen_option() -> None:
    llm = Says("The answer is B.")
    (answer,) = Pipeline(mode="direct", llm=llm)([Question("Who won?", ANN_BEN)])
    assert (answer.choice, answer.answer, answer.notes) == ("B", "Ben", ())
    assert answer.to_json()["choice"] == "B"
    assert llm.requests[0].choices == ANN_BEN


def test_a_reply_that_names_no_option_counts_as_no_choice_and_is_told() -> None:
    (answer,) = Pipeline(mode="direct", llm=Says("Perhaps Cal"))([Question("Who won?", ANN_BEN)])
    assert (answer.choice, answer.answer) == ("", "Perhaps Cal")
    assert "'Perhaps Cal' names none of the options" in answer.notes[0]


def test_an_open_question_has_no_choice() -> None:
    (answer,) = Pipeline(mode="direct", llm=Says("B"))(["Who won?"])
    assert answer.choice is None
    assert "choice" not in answer.to_json()


def test_questions_with_equal_text_and_different_options_are_different() -> None:
    llm = Says("Ann")
    asked: list[str | Question] = [
        Question("Who won?", ANN_BEN),
        Question("Who won?", BEN_ANN),
        "Who won?",
        Question("Who won?", ANN_BEN),
    ]
    answers = Pipeline(mode="direct", llm=llm)(asked)
    assert [answer.choice for answer in answers] == ["A", "B", None, "A"]
    assert [answer.calls for answer in answers] == [1, 1, 1, 1]
    assert len(llm.requests) == 3


def test_a_choice_is_streamed_as_the_text_of_the_option() -> None:
    pieces = list(Pipeline(mode="direct", llm=Says("B")).stream(Question("Who won?", ANN_BEN)))
    assert pieces[0] == "Ben"
    assert len(pieces) == 2


def test_demonstrations_of_a_question_take_the_place_of_the_built_in_ones_of_their_kind() -> None:
    shot = Example("answer", "Who lost?", "A", choices=BEN_ANN)
    llm = Says("B")
    Pipeline(mode="direct", llm=llm)([Question("Who won?", ANN_BEN, (shot,)), "Who won?"])
    assert llm.requests[0].shots == (shot,)
    assert any(example.kind == "need" for example in llm.requests[0].examples)
    assert shot not in llm.requests[1].examples


class AsksTheLLM:
    """A gate that asks one `need` request a question, as self-ask does."""

    def __init__(self, llm: object) -> None:
        self.llm = llm

    def knows(self, questions: Sequence[str]) -> Array:
        for question in questions:
            self.llm.reply(Request("need", question))  # type: ignore[attr-defined]
        return np.ones(len(questions), dtype=np.float32)


def test_the_gate_asks_with_the_options_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = Says("A")
    pipeline = Pipeline(mode="direct", llm=llm)
    gate = AsksTheLLM(pipeline._client)
    monkeypatch.setattr(type(pipeline._gate.gate), "knows", lambda _, questions: gate.knows(questions))
    pipeline([Question("Who won?", ANN_BEN)])
    assert [(r.kind, r.choices) for r in llm.requests] == [("need", ANN_BEN), ("answer", ANN_BEN)]


def test_the_embedded_llm_chooses() -> None:
    cities = (Choice("A", "Rome"), Choice("B", "Paris"))
    (answer,) = Pipeline(mode="direct", llm=EmbeddedLLM())(
        [Question("What is the capital of France?", cities)]
    )
    assert (answer.choice, answer.answer) == ("B", "Paris")


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("  ", "question is empty"),
        ("\ud800", "not UTF-8"),
        (Question("q", (Choice("A", "Ann"),)), "one option, 'A'"),
        (Question("q", (Choice("A", "Ann"), Choice("a", "Ben"))), "2 options have the letter 'A'"),
        (Question("q", (Choice("A", "Ann"), Choice("B", " "))), "option 'B' is ' '"),
    ],
)
def test_a_question_that_can_not_be_asked_is_refused(question: str | Question, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        checked(question)


def test_groups_keep_the_order_and_hold_no_text_twice() -> None:
    one, two, three = Question("a"), Question("b"), Question("a", ANN_BEN)
    assert list(distinct_texts([one, two, three])) == [[one, two], [three]]
