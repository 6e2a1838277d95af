"""Top-down grows one transcript, word by word that of the paper's tables 10 and 11."""

from collections.abc import Sequence

import numpy as np
import pytest

from kcard.gates.base import Always
from kcard.gates.self_ask import SelfAsk
from kcard.integrators.assembly import gate_turns
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import AutoChoice, CardChoice, ExplicitChoice, SingleDocument, TopDown
from kcard.interfaces import LLM, Array, Checker, Pair, Pruner, Relevance
from kcard.llms.client import fit
from kcard.llms.prompts import FunctionLLM, render
from kcard.types import Choice, Context, Passage, Reply, Request, Sampling
from tests.fakes import WrittenCards, questions

QUESTION = "Who is the senior senator from Tom Brady's birth place?"
HOMETOWN = "Tom Brady returned to his hometown of San Mateo, CA"
CARDS = tuple(Choice(n, n) for n in ("sports", "biomedical literature", "NLP papers", "book corpus"))
NEED = "Do you need more information? (Yes or No)"
TABLE_10 = f"""Question: {QUESTION} {NEED} Yes What kind of information do you need? The state Tom Brady is from.
Knowledge: {HOMETOWN} {NEED} No Answer:"""
TABLE_11 = f"""Question: {QUESTION} {NEED} Yes Choose an information source from the following: sports, biomedical
literature, NLP papers, book corpus. sports Knowledge: {HOMETOWN} {NEED} No Answer:"""


class Prompts:
    """A text LLM that plays the tables' part, and keeps the prompts that it was shown."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.seen.append(prompt)
        asked = prompt.rstrip().splitlines()[-1]
        if asked == NEED:
            return "No" if HOMETOWN in prompt else "Yes"
        if asked.startswith("What kind"):
            return "The state Tom Brady is from."
        return "sports" if asked.startswith("Choose") else "Dianne Feinstein"


SPORTS = WrittenCards(CARDS, lambda c, _: [Passage(c, HOMETOWN if c == "sports" else f"of {c}")])


class First(Relevance):
    def scores(self, question: str, texts: Sequence[str]) -> Array:
        del question
        return np.linspace(1, 0, len(texts), dtype=np.float32)


class Uncut(Pruner):
    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        del question
        return list(texts)


class Supported(Checker):
    def support(self, pairs: Sequence[Pair]) -> Array:
        return np.ones(len(pairs), dtype=np.float32)


def transcript(llm: FunctionLLM, choice: CardChoice, rounds: int = 2) -> Request:
    """The request for the answer, after the gate and the rounds."""
    gate = SelfAsk(llm)
    (decision,) = gate.decide(questions(QUESTION), "self-ask")
    turns = gate_turns(gate, decision.fired)
    step = SingleDocument(SPORTS, Selectors(First(), Uncut(), Supported(), {}))
    top_down = TopDown(step, Sampling(), llm, choice, len(CARDS), max_iterations=rounds, opening=turns)
    (found,) = top_down.gather(questions(QUESTION)) if decision.fired else (Context(turns=turns),)
    return Request("answer", QUESTION, found.knowledge, turns=found.turns)


@pytest.mark.parametrize(("explicit", "table"), [(False, TABLE_10), (True, TABLE_11)])
def test_the_prompt_is_word_by_word_the_papers(explicit: bool, table: str) -> None:
    prompts = Prompts()
    llm = FunctionLLM(prompts)
    choice = ExplicitChoice(CARDS) if explicit else AutoChoice(CardRanker(First(), CARDS))
    prompt = render(transcript(llm, choice))
    assert prompt.split() == table.split()
    assert len(prompt.splitlines()) == 9
    for earlier in prompts.seen:
        assert prompt.startswith(earlier), "each prompt continues the one before"
    assert len(prompts.seen) == 3


def test_after_the_last_round_the_answer_follows_the_knowledge() -> None:
    llm = FunctionLLM(Prompts())
    lines = render(transcript(llm, AutoChoice(CardRanker(First(), CARDS)), rounds=1)).splitlines()
    assert lines[-2:] == [f"Knowledge: {HOMETOWN}", "Answer:"]


def test_where_the_llm_needs_nothing_its_no_stands_before_the_answer() -> None:
    llm = FunctionLLM(lambda _: "No")
    prompt = render(transcript(llm, AutoChoice(CardRanker(First(), CARDS))))
    assert prompt.splitlines() == [f"Question: {QUESTION}", NEED, "No", "Answer:"]


def test_a_gate_that_asks_the_llm_nothing_leaves_nothing_in_the_transcript() -> None:
    assert gate_turns(Always(FunctionLLM(str)), fired=True) == ()


class Narrow(LLM):
    """An LLM that reads so many words."""

    def __init__(self, window: int) -> None:
        self.window = window

    def count(self, request: Request) -> int:
        return len(render(request).split())

    def reply(self, request: Request) -> Reply:
        raise NotImplementedError


def test_a_narrow_window_cuts_knowledge_first_and_the_earlier_turns_where_they_are_too_long() -> None:
    llm = FunctionLLM(Prompts())
    request = transcript(llm, AutoChoice(CardRanker(First(), CARDS)))
    shorter, note = fit(request, Narrow(75))
    assert (shorter.turns, shorter.knowledge) == (request.turns, request.knowledge)
    assert note is None
    shorter, note = fit(request, Narrow(30))
    assert shorter.turns == ()
    assert "earlier exchanges" in (note or "")
    assert len(render(shorter).split()) <= 30
