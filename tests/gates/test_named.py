"""Gates give a score; one comparison decides."""

from collections.abc import Sequence

import numpy as np
import pytest

from kcard.gates.base import Always, Never, decide
from kcard.gates.self_ask import SelfAsk, SelfAskEnsemble, needs
from kcard.types import Example, Reply, Request


class Scripted:
    """An LLM that needs more wherever the question speaks of elections."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        need = 0.9 if "election" in request.question else 0.2
        return Reply("Yes" if need > 0.5 else "No", yes=need)


def test_always_asks_cards_and_never_does_not_and_neither_asks_the_llm() -> None:
    llm = Scripted()
    assert [d.fired for d in decide(Always(llm), "always", ["a", "b"])] == [True, True]
    assert [d.fired for d in decide(Never(llm), "never", ["a", "b"])] == [False, False]
    assert llm.requests == []


def test_self_ask_scores_one_minus_the_need_with_one_request_a_question() -> None:
    llm = Scripted()
    examples = (Example("need", "2+2?", "No"),)
    decisions = decide(SelfAsk(llm, examples), "self-ask", ["Who won the election?", "What is 2+2?"])
    assert [d.fired for d in decisions] == [True, False]
    np.testing.assert_allclose([d.score for d in decisions], [0.1, 0.8], atol=1e-6)
    assert [(r.kind, r.knowledge, r.examples) for r in llm.requests] == [("need", (), examples)] * 2


def test_a_reply_that_is_neither_yes_nor_no_asks_the_cards() -> None:
    class Mumbling:
        def reply(self, request: Request) -> Reply:
            return Reply(f"Well, {request.kind}...", yes=None)

    (decision,) = decide(SelfAsk(Mumbling()), "self-ask", ["q"])
    assert decision.fired
    assert decision.score == 0.0


def test_a_score_on_the_threshold_does_not_ask_the_cards() -> None:
    class Even:
        def knows(self, questions: list[str]) -> np.ndarray:
            return np.full(len(questions), 0.5, dtype=np.float32)

    (decision,) = decide(Even(), "even", ["q"], threshold=0.5)  # type: ignore[arg-type]
    assert not decision.fired


class Votes:
    """An LLM that replies to the three wordings one after the other."""

    def __init__(self, votes: Sequence[float | None]) -> None:
        self.votes = list(votes)
        self.templates: list[int] = []

    def reply(self, request: Request) -> Reply:
        self.templates.append(request.template)
        return Reply("", yes=self.votes.pop(0))


@pytest.mark.parametrize(
    ("votes", "score", "fired"),
    [
        ((0.9, 0.6, 0.51), 0, True),
        ((0.99, 0.1, 0.4), 2 / 3, False),
        ((0.51, 0.6, 0.0), 1 / 3, True),
        ((0.0, 0.5, 1.0), 2 / 3, False),
        ((None, None, None), 0, True),
        ((None, 0.0, 0.9), 1 / 3, True),
        ((None, 0.0, 0.0), 2 / 3, False),
    ],
)
def test_of_three_wordings_the_majority_decides(
    votes: Sequence[float | None], score: float, fired: bool
) -> None:
    llm = Votes(votes)
    (decision,) = decide(SelfAskEnsemble(llm), "self-ask-ensemble", ["q"])
    assert decision.score == pytest.approx(score, abs=1e-6)
    assert decision.fired is fired
    assert llm.templates == [0, 1, 2]


def test_a_need_is_asked_with_the_knowledge_so_far() -> None:
    llm = Scripted()
    assert needs(llm, [Request("need", "q", ("k",))]) == [0.2]
    assert llm.requests[0].knowledge == ("k",)
