"""What the reader is not to read: other rows, other times, siblings."""

import math

import pytest

from kcard.embedded.question_forms import form_of
from kcard.llms.extraction.extract import extract
from kcard.llms.extraction.scope import in_scope
from kcard.llms.extraction.times import NOW, asked_period, includes_year, period_of, weekdays

FEES = "Millers pay 40 coins a year. Carters pay 5 coins. Before 1919 millers paid 30 coins."


def scope(question: str, text: str) -> str:
    return in_scope(question, form_of(question), text)


@pytest.mark.parametrize("question", ["How much do millers pay now?", "How much do millers pay?"])
def test_a_question_about_now_leaves_out_what_was_before(question: str) -> None:
    assert "30 coins" not in scope(question, FEES)
    found = extract(question, [FEES])
    assert found is not None
    assert found.text.startswith("40 coins")


def test_a_question_about_a_year_keeps_the_sentence_whose_period_has_it() -> None:
    question = "How much did millers pay in 1918?"
    assert "30 coins" in scope(question, FEES)
    assert "40 coins" not in scope(question, FEES)
    found = extract(question, [FEES])
    assert found is not None
    assert found.text == "30 coins"


@pytest.mark.parametrize(
    "question", ["When were 30 coins paid?", "How do millers pay?", "Who was the miller of Tarn?"]
)
def test_other_questions_leave_a_passage_as_it_is(question: str) -> None:
    assert scope(question, FEES) == FEES


def test_a_sentence_of_another_time_stays_if_nothing_else_has_its_words() -> None:
    text = "Before 1919 millers paid 30 coins. Carters sing."
    assert scope("How much do millers pay?", text) == text


def test_a_sentence_about_another_subject_is_left_out_unless_it_leans_on_one() -> None:
    assert scope("How much do carters pay?", FEES) == "Carters pay 5 coins."
    text = "The tower of Tarn was built by Halden & Co. It was built in 1871."
    assert scope("When was the tower of Tarn built?", text) == text


def test_of_clauses_with_superlatives_the_one_that_is_asked_about_stays() -> None:
    text = "The oldest boat, Goose, was built by Halden; the newest, Swan, was built by Lund. Both float."
    assert scope("Which boat is the newest?", text) == "the newest, Swan, was built by Lund. Both float."
    assert scope("Which boat floats?", text) == text


def test_rows_of_other_things_are_left_out() -> None:
    table = "Tarn; Miller: Ada; Rent: 4\nSkarn; Miller: Bo; Rent: 5"
    assert scope("Who runs the mill of Skarn?", f"Mills.\n{table}") == "Mills.\nSkarn; Miller: Bo; Rent: 5"
    assert scope("Which mills are there?", table) == table


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("Before 1919 it was red.", (-math.inf, 1918.0)),
        ("It was red until 1919.", (-math.inf, 1919.0)),
        ("It has been red since May 1919.", (1919.0, math.inf)),
        ("It was red from 1903 to 1908.", (1903.0, 1908.0)),
        ("It was red in 1919.", (1919.0, 1919.0)),
        ("It used to be red.", (-math.inf, NOW - 1)),
        ("It has 1919 bricks.", None),
    ],
)
def test_the_years_of_a_sentence(text: str, period: tuple[float, float] | None) -> None:
    assert period_of(text) == period


def test_a_question_in_the_present_tense_asks_about_now() -> None:
    assert asked_period("Who is the miller?") == (NOW, NOW)
    assert asked_period("Who was the miller?") is None
    assert asked_period("Who was the miller before 1919?") == (-math.inf, 1918.0)


def test_a_year_may_lie_within_a_period() -> None:
    assert includes_year(FEES, "1918")
    assert not includes_year(FEES, "1919")
    assert not includes_year(FEES, "40")


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("Mon-Wed", {0, 1, 2}),
        ("Saturday to Monday", {5, 6, 0}),
        ("at weekends", {5, 6}),
        ("the sun sat low", set()),
    ],
)
def test_days_of_the_week(text: str, days: set[int]) -> None:
    assert weekdays(text) == days
