"""What the reader is not to read: other rows, other times, siblings."""

import math

import pytest

from kcard.embedded.question_forms import form_of
from kcard.llms.extraction.extract import extract
from kcard.llms.extraction.scope import in_scope, names_unknown_version
from kcard.llms.extraction.times import PRESENT_YEAR, asked_period, includes_year, period_of, weekdays

FEES = "Millers pay 40 coins a year. Carters pay 5 coins. Before 1919 millers paid 30 coins."


MUCH = "How much do millers pay?"
AGO = "Before 1919 millers paid 30 coins. Carters sing."
TOWER = "The tower of Tarn was built by Halden & Co. It was built in 1871."
BOATS = "The oldest boat, Goose, was built by Halden; the newest, Swan, was built by Lund. Both float."
RENTS = "Tarn; Miller: Ada; Rent: 4\nSkarn; Miller: Bo; Rent: 5"


@pytest.mark.parametrize(
    ("question", "text", "read"),
    [
        ("How much do millers pay now?", FEES, "Millers pay 40 coins a year."),
        (MUCH, FEES, "Millers pay 40 coins a year."),
        ("How much did millers pay in 1918?", FEES, "Before 1919 millers paid 30 coins."),
        ("How much do carters pay?", FEES, "Carters pay 5 coins."),
        ("When were 30 coins paid?", FEES, FEES),
        ("How do millers pay?", FEES, FEES),
        ("Who was the miller of Tarn?", FEES, FEES),
        (MUCH, AGO, AGO),
        ("When was the tower of Tarn built?", TOWER, TOWER),
        ("Which boat is the newest?", BOATS, "the newest, Swan, was built by Lund. Both float."),
        ("Which boat floats?", BOATS, BOATS),
        ("Who runs the mill of Skarn?", f"Mills.\n{RENTS}", "Mills.\nSkarn; Miller: Bo; Rent: 5"),
        ("Which mills are there?", RENTS, RENTS),
    ],
)
def test_what_is_of_another_time_or_thing_is_left_out_unless_nothing_else_has_its_words(
    question: str, text: str, read: str
) -> None:
    assert in_scope(question, form_of(question), text) == read


@pytest.mark.parametrize(
    ("question", "text"), [(MUCH, "40 coins"), ("How much did millers pay in 1918?", "30 coins")]
)
def test_the_fee_of_the_time_that_is_asked_about_answers(question: str, text: str) -> None:
    found = extract(question, [FEES])
    assert found is not None
    assert found.text == text


def test_a_question_in_the_present_tense_asks_about_now() -> None:
    assert asked_period("Who is the miller?") == (PRESENT_YEAR, PRESENT_YEAR)
    assert asked_period("Who was the miller?") is None
    assert asked_period("Who was the miller before 1919?") == (-math.inf, 1918.0)


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("Before 1919 it was red.", (-math.inf, 1918.0)),
        ("It was red until 1919.", (-math.inf, 1919.0)),
        ("It has been red since May 1919.", (1919.0, math.inf)),
        ("It was red from 1903 to 1908.", (1903.0, 1908.0)),
        ("It was red in 1919.", (1919.0, 1919.0)),
        ("It used to be red.", (-math.inf, PRESENT_YEAR - 1)),
        ("It has 1919 bricks.", None),
    ],
)
def test_the_years_of_a_sentence(text: str, period: tuple[float, float] | None) -> None:
    assert period_of(text) == period


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


HEATER = "Release 3.4.0 of the heater Orla 20 came in May 2019. Model K-7 is described in chapter 12."


@pytest.mark.parametrize(
    "question",
    [
        "When was v3.5.0 released?",
        "When was release 3.4.1 released?",
        "How heavy is the Orla 30?",
        "Who made model K9?",
        "Does it run on Norlin 12.1?",
    ],
)
def test_a_version_or_model_that_no_text_has_is_unknown(question: str) -> None:
    assert names_unknown_version(question, [HEATER])
    found = extract(question, [HEATER])
    assert found is None or not found.is_sure


@pytest.mark.parametrize(
    "question",
    [
        "When was v3.4.0 released?",
        "When was 3.4 released?",
        "How heavy is the Orla 20?",
        "Who made model K7?",
        "May I bring 2 dogs?",
        "What happened in May 2018?",
        "Who was chair in 2015?",
        "Who was the 3rd chair?",
        "Is the shop open at 9am or 8:30?",
        "May I wait for 30min?",
    ],
)
def test_amounts_and_times_are_no_versions(question: str) -> None:
    assert not names_unknown_version(question, [HEATER])


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How many files does the driver read?", "Version v2.7.1 of the driver reads UTF-16 and RFC 4180."),
        ("How many times is the clock read?", "The clock rtc2 is read at 07:30 each day since 3 May 2020."),
        ("How many ovens does the bakery have?", "The oven T400 of the bakery was built in 1998."),
        ("How many packages are there in Norlin?", "All packages of Norlin 7 and Norlin 8 are signed."),
    ],
)
def test_a_question_how_many_is_not_answered_with_a_name_version_or_time(question: str, text: str) -> None:
    found = extract(question, [text])
    assert found is None or not found.is_sure
