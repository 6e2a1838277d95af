"""Choosing among more cards than are shown or can write: the nearest, and the user is told."""

from collections.abc import Sequence

import numpy as np

from kcard.integrators.bottom_up import BottomUp
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.pool_views import Selectors
from kcard.integrators.top_down import CardSelection, ExplicitChoice
from kcard.interfaces import Array, Pair
from kcard.selectors.pruning import Unpruned
from kcard.selectors.relevance import MiniLMRelevance
from kcard.types import Choice, Passage, Reply, Request, Sampling

CARDS = [Choice(f"stones-{n}", f"weights of stones in the quarry {n}") for n in range(1900, 2050)]
CARDS += [Choice("moons", "moons of the solar system and their discoverers")]


class Length:
    """Relevance that reads the texts one by one, and counts what it was asked to read."""

    def __init__(self) -> None:
        self.read = 0

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        del question
        self.read += len(texts)
        return np.array([0.9 if "moons" in text else len(text) / 1000 for text in texts], dtype=np.float32)


class Names:
    """An LLM that names a card, whatever it is shown."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        return Reply(self.name)


class Writes:
    """A pool whose cards write their names."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.cards = CARDS

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        del documents, sampling
        self.asked.append(tuple(cards))
        return [[Passage(card, f"{card} says so.") for card in cards] for _ in questions]


class Believes:
    def support(self, pairs: Sequence[Pair]) -> Array:
        return np.ones(len(pairs), dtype=np.float32)


def test_the_nearest_card_is_found_among_all() -> None:
    nearest = CardRanker(MiniLMRelevance(), CARDS)
    assert nearest("Who discovered the moons of Saturn?", 3)[0].name == "moons"
    assert nearest("What did stones weigh in the quarry 1950?", 1)[0].name == "stones-1950"


def test_cards_that_were_asked_are_passed_over() -> None:
    nearest = CardRanker(MiniLMRelevance(), CARDS)
    first = nearest("Who discovered the moons of Saturn?", 1)
    again = nearest("Who discovered the moons of Saturn?", 200, {first[0].name})
    assert len(again) == len(CARDS) - 1
    assert first[0] not in again


def test_a_selector_that_cannot_be_prepared_reads_the_hundred_that_the_encoder_puts_first() -> None:
    selector = Length()
    found = CardRanker(selector, CARDS)("Who discovered the moons of Saturn?", len(CARDS))
    assert selector.read == 100
    assert found[0].name == "moons"
    assert len({card.name for card in found}) == len(CARDS)


def chosen(llm: Names, choice: ExplicitChoice, question: str) -> CardSelection:
    request = choice.request(question)
    return choice.read_choice(request, llm.reply(request))


def test_an_explicit_choice_lists_only_the_nearest_and_says_so() -> None:
    llm = Names("moons")
    choice = ExplicitChoice(CARDS, ranker=CardRanker(MiniLMRelevance(), CARDS), shortlist=5)
    found = chosen(llm, choice, "Who discovered the moons of Saturn?")
    assert len(llm.requests[0].choices) == 5
    assert llm.requests[0].choices[0].name == "moons"
    assert found.cards == ("moons",)
    assert found.notes == ("of 151 cards the LLM chose among the 5 nearest to the question (--shortlist)",)


def test_a_card_that_was_not_listed_is_not_chosen() -> None:
    found = chosen(
        Names("stones-1900"),
        ExplicitChoice(CARDS, ranker=CardRanker(MiniLMRelevance(), CARDS), shortlist=1),
        "Who discovered the moons of Saturn?",
    )
    assert found.cards == ()
    assert "names no card" in found.notes[-1]


def test_as_many_cards_as_the_shortlist_are_all_listed_as_they_stand() -> None:
    llm = Names("moons")
    found = chosen(
        llm,
        ExplicitChoice(CARDS, ranker=CardRanker(MiniLMRelevance(), CARDS), shortlist=len(CARDS)),
        "Which stones?",
    )
    assert llm.requests[0].choices == tuple(CARDS)
    assert found.notes == ()


def test_bottom_up_lets_the_nearest_cards_write_for_each_question_and_says_so() -> None:
    pool = Writes()
    run = BottomUp(pool, Selectors(MiniLMRelevance(), Unpruned(), Believes(), {}), Sampling(), max_cards=2)
    moons, stones = run.gather(["Who discovered moons?", "What did stones weigh in the quarry 1950?"])
    assert [names[0] for names in pool.asked] == ["moons", "stones-1950"]
    assert {len(names) for names in pool.asked} == {2}
    assert moons.notes == stones.notes == ("of 151 cards the 2 nearest to the question wrote (--max-cards)",)


def test_bottom_up_lets_all_write_where_there_are_no_more() -> None:
    pool = Writes()
    run = BottomUp(
        pool, Selectors(MiniLMRelevance(), Unpruned(), Believes(), {}), Sampling(), max_cards=len(CARDS)
    )
    (found,) = run.gather(["Who discovered moons?"])
    assert pool.asked == [tuple(card.name for card in CARDS)]
    assert found.notes == ()
