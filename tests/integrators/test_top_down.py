"""Which cards the LLM asks for: by description, or by name; whatever it replies is reported, never guessed."""

from dataclasses import replace

import pytest

from kcard.gates.self_ask import SelfAsk
from kcard.integrators.assembly import gate_turns
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import (
    AutoChoice,
    CardChoice,
    ExplicitChoice,
    LLMChoice,
    Need,
    SingleDocument,
    TopDown,
    mentioned_cards,
)
from kcard.interfaces import LLM
from kcard.llms.client import fit
from kcard.llms.prompts import FunctionLLM, render
from kcard.selectors.pruning import Unpruned
from kcard.types import Choice, Context, Passage, Question, Reply, Request, Sampling
from tests.fakes import FirstBest, Says, SharedWords, Supports, WrittenCards, questions

CARDS = (
    Choice("elections", "results of elections"),
    Choice("moons", "moons of the planets"),
    Choice("prizes", "winners of prizes"),
)


NEAREST = AutoChoice(CardRanker(SharedWords(), CARDS))
TWO = replace(NEAREST, most=2)


@pytest.mark.parametrize(
    ("choice", "reply", "cards", "note"),
    [
        (ExplicitChoice(CARDS), "I would take: Prizes, or else moons", ("prizes",), "only prizes was used"),
        (ExplicitChoice(CARDS), "the library", (), "'the library' names no card"),
        (ExplicitChoice(CARDS), " \n", (), "is empty"),
        (ExplicitChoice(CARDS), "", (), "is empty"),
        (
            NEAREST,
            " ",
            ("moons",),
            "the LLM did not say what it needs",
        ),
        # A second card is taken if it fits nearly as well.
        (replace(TWO, margin=0.1), "moons winners", ("prizes", "moons"), None),  # scores .46 and .38
        (replace(TWO, margin=0.0), "moons winners", ("prizes",), None),
        (replace(TWO, margin=0.2), "the moons winners", ("moons", "prizes"), None),  # .63 and .46
        (replace(TWO, margin=0.1), "the moons winners", ("moons",), None),
    ],
)
def test_cards_are_chosen_by_the_reply_and_what_is_odd_about_it_is_reported(
    choice: LLMChoice, reply: str, cards: tuple[str, ...], note: str | None
) -> None:
    (found,) = choice.select(Says(reply), [Need(Question("moons of the planets"))])
    assert found.cards == cards
    if note is None:
        assert found.notes == ()
    else:
        assert note in found.notes[0]


def test_a_card_is_named_by_its_whole_name_or_description_only() -> None:
    cards = (
        Choice("moon", "one moon"),
        Choice("moons", "many moons"),
        Choice("moons-of-mars", "Phobos and Deimos"),
    )
    assert [c.name for c in mentioned_cards("moons-of-mars, then moon", cards)] == ["moons-of-mars", "moon"]
    assert [c.name for c in mentioned_cards("many moons please", cards)] == ["moons"]
    assert mentioned_cards("honeymoon", cards) == []
    crossing = (Choice("moons", "moons; for winners see prizes"), Choice("prizes", "winners of prizes"))
    assert [c.name for c in mentioned_cards("moons (moons; for winners see prizes)", crossing)] == ["moons"]
    assert [c.name for c in mentioned_cards("prizes", crossing)] == ["prizes"]


# The transcript of a question is the prompt of the paper's tables, word by word.

QUESTION = "Who is the senior senator from Tom Brady's birth place?"
HOMETOWN = "Tom Brady returned to his hometown of San Mateo, CA"
SOURCES = tuple(Choice(n, n) for n in ("sports", "biomedical literature", "NLP papers", "book corpus"))
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


SPORTS = WrittenCards(SOURCES, lambda c, _: [Passage(c, HOMETOWN if c == "sports" else f"of {c}")])


def transcript(llm: FunctionLLM, choice: CardChoice, rounds: int = 2) -> Request:
    """The request for the answer, after the gate and the rounds."""
    gate = SelfAsk(llm)
    (decision,) = gate.decide(questions(QUESTION), "self-ask")
    turns = gate_turns(gate, decision.fired)
    step = SingleDocument(SPORTS, Selectors(FirstBest(), Unpruned(), Supports(), {}))
    top_down = TopDown(step, Sampling(), llm, choice, len(SOURCES), max_iterations=rounds, opening=turns)
    (found,) = top_down.gather(questions(QUESTION)) if decision.fired else (Context(turns=turns),)
    return Request("answer", QUESTION, found.knowledge, turns=found.turns)


@pytest.mark.parametrize(("explicit", "table"), [(False, TABLE_10), (True, TABLE_11)])
def test_the_prompt_is_word_by_word_the_papers(explicit: bool, table: str) -> None:
    prompts = Prompts()
    llm = FunctionLLM(prompts)
    choice = ExplicitChoice(SOURCES) if explicit else AutoChoice(CardRanker(FirstBest(), SOURCES))
    prompt = render(transcript(llm, choice))
    assert prompt.split() == table.split()
    assert len(prompt.splitlines()) == 9
    for earlier in prompts.seen:
        assert prompt.startswith(earlier), "each prompt continues the one before"
    assert len(prompts.seen) == 3


def test_after_the_last_round_the_answer_follows_the_knowledge() -> None:
    llm = FunctionLLM(Prompts())
    lines = render(transcript(llm, AutoChoice(CardRanker(FirstBest(), SOURCES)), rounds=1)).splitlines()
    assert lines[-2:] == [f"Knowledge: {HOMETOWN}", "Answer:"]


def test_where_the_llm_needs_nothing_its_no_stands_before_the_answer() -> None:
    llm = FunctionLLM(lambda _: "No")
    prompt = render(transcript(llm, AutoChoice(CardRanker(FirstBest(), SOURCES))))
    assert prompt.splitlines() == [f"Question: {QUESTION}", NEED, "No", "Answer:"]


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
    request = transcript(llm, AutoChoice(CardRanker(FirstBest(), SOURCES)))
    shorter, note = fit(request, Narrow(75))
    assert (shorter.turns, shorter.knowledge) == (request.turns, request.knowledge)
    assert note is None
    shorter, note = fit(request, Narrow(30))
    assert shorter.turns == ()
    assert "earlier exchanges" in (note or "")
    assert len(render(shorter).split()) <= 30
