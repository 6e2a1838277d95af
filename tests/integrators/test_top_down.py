"""Which cards the LLM asks for: by description, or by name; whatever it replies is reported, never guessed."""

from collections.abc import Collection, Sequence

import numpy as np
import pytest

from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.top_down import AutoChoice, CardChoice, CardSelection, ExplicitChoice, mentioned_cards
from kcard.interfaces import Array, Relevance
from kcard.types import Choice, Question
from tests.fakes import Says

CARDS = (
    Choice("elections", "results of elections"),
    Choice("moons", "moons of the planets"),
    Choice("prizes", "winners of prizes"),
)


def chosen(
    llm: Says, choice: CardChoice, question: str, knowledge: Sequence[str] = (), asked: Collection[str] = ()
) -> CardSelection:
    """What the LLM's reply to the choice's request comes to."""
    request = choice.request(Question(question), knowledge, asked)
    return choice.read_choice(request, llm.reply(request), asked)


class Overlap(Relevance):
    """Relevance as the share of common words."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        words = set(question.lower().split())
        return np.array([len(words & set(t.split())) / len(t.split()) for t in texts], dtype=np.float32)


def test_an_explicit_choice_shows_every_card_to_the_llm() -> None:
    llm = Says("I would take: Elections.")
    found = chosen(llm, ExplicitChoice(CARDS), "q")
    assert (found.cards, found.notes) == (("elections",), ())
    assert llm.requests[0].choices == CARDS


def test_of_several_named_cards_the_first_is_taken_and_the_user_told() -> None:
    found = chosen(Says("prizes, or else moons"), ExplicitChoice(CARDS), "q")
    assert found.cards == ("prizes",)
    assert "named prizes, moons; only prizes was used" in found.notes[0]


def test_all_named_cards_are_taken_where_several_may_be() -> None:
    found = chosen(Says("prizes, or else moons"), ExplicitChoice(CARDS, most=None), "q")
    assert (found.cards, found.notes) == (("prizes", "moons"), ())


@pytest.mark.parametrize(
    ("reply", "note"), [("the library", "'the library' names no card"), (" \n", "is empty"), ("", "is empty")]
)
def test_a_choice_of_no_card_is_reported(reply: str, note: str) -> None:
    found = chosen(Says(reply), ExplicitChoice(CARDS), "q")
    assert found.cards == ()
    assert note in found.notes[0]


def test_a_card_that_was_asked_before_is_not_offered_again() -> None:
    llm = Says("moons")
    found = chosen(llm, ExplicitChoice(CARDS), "q", ("known",), ("moons",))
    assert found.cards == ()
    assert "moons again" in found.notes[0]
    assert [card.name for card in llm.requests[0].choices] == ["elections", "prizes"]
    assert llm.requests[0].knowledge == ("known",)
    assert chosen(Says("moons of"), AutoChoice(CardRanker(Overlap(), CARDS)), "q", (), ("moons",)).cards == (
        "elections",
    )


def test_the_nearest_descriptions_are_proposed_in_their_order() -> None:
    choice = AutoChoice(CardRanker(Overlap(), CARDS), most=2)
    assert chosen(Says("planets and moons of winners"), choice, "q").cards == ("moons", "prizes")


@pytest.mark.parametrize(
    ("wanted", "margin", "cards"),
    [
        ("moons winners", 0.1, ("prizes", "moons")),  # scores .46 and .38
        ("moons winners", 0.0, ("prizes",)),
        ("the moons winners", 0.2, ("moons", "prizes")),  # .63 and .46
        ("the moons winners", 0.1, ("moons",)),
    ],
)
def test_a_second_card_is_taken_only_if_it_fits_nearly_as_well(
    wanted: str, margin: float, cards: tuple[str, ...]
) -> None:
    choice = AutoChoice(CardRanker(Overlap(), CARDS), most=2, margin=margin)
    assert chosen(Says(wanted), choice, "q").cards == cards


def test_an_empty_wish_falls_back_to_the_question_and_says_so() -> None:
    found = chosen(Says(" "), AutoChoice(CardRanker(Overlap(), CARDS)), "moons of the planets")
    assert found.cards == ("moons",)
    assert len(found.notes) == 1


def test_a_card_is_named_by_its_whole_name_or_description_only() -> None:
    cards = (
        Choice("moon", "one moon"),
        Choice("moons", "many moons"),
        Choice("moons-of-mars", "Phobos and Deimos"),
    )
    assert [c.name for c in mentioned_cards("moons-of-mars, then moon", cards)] == ["moons-of-mars", "moon"]
    assert [c.name for c in mentioned_cards("many moons please", cards)] == ["moons"]
    assert mentioned_cards("honeymoon", cards) == []


def test_a_card_named_only_inside_anothers_description_is_not_named() -> None:
    cards = (Choice("moons", "moons; for winners see prizes"), Choice("prizes", "winners of prizes"))
    assert [c.name for c in mentioned_cards("moons (moons; for winners see prizes)", cards)] == ["moons"]
    assert [c.name for c in mentioned_cards("prizes", cards)] == ["prizes"]
