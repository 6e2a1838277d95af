"""A reply's option is read from letter or text in the forms that LLMs use; a reply that names none is None."""

import pytest

from kcard.llms.parsing import named_option
from kcard.types import Choice

PEOPLE = (
    Choice("A", "Jan McDowell"),
    Choice("B", "Beth Van Duyne"),
    Choice("C", "Ron Wyden"),
    Choice("D", "Wyden Hill"),
)


@pytest.mark.parametrize(
    "reply",
    [
        "B",
        "b",
        "(B)",
        "B.",
        "b)",
        " B\n",
        "**B**",
        "B. Beth Van Duyne",
        "(B) Beth Van Duyne",
        "B: Beth",
        "B - Beth Van Duyne",
        "B Beth Van Duyne",
        "B\n\nShe won in 2022.",
        "The answer is B.",
        "The correct answer is (B), not A.",
        "Answer: B",
        "I think it is option B because she won.",
        r"\boxed{B}",
        "Beth Van Duyne",
        "beth van duyne!",
        "It was Beth Van Duyne who won.",
        "Van Duyne",
        "First I thought of A. So the answer is B",
    ],
)
def test_a_letter_or_an_options_text_names_it(reply: str) -> None:
    assert named_option(reply, PEOPLE) == "B"


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I don't know.",
        "A woman won.",
        "The answer is a matter of taste",
        "The answer is A man from Texas",
        "Neither of them",
        "Jan McDowell or Beth Van Duyne",
        "Wyden",
        "E",
        "(A) or (B)",
    ],
)
def test_a_reply_that_names_none_or_several_is_no_choice(reply: str) -> None:
    assert named_option(reply, PEOPLE) is None


def test_the_longer_of_two_options_wins_where_one_holds_the_other() -> None:
    options = (Choice("A", "New York"), Choice("B", "New York City"), Choice("C", "York"))
    assert named_option("It is in New York City.", options) == "B"
    assert named_option("York", options) == "C"


def test_options_that_differ_in_signs_alone_are_told_apart() -> None:
    options = (Choice("A", "5"), Choice("B", "-5"), Choice("C", "x = 5"))
    assert named_option("-5", options) == "B"
    assert named_option("5", options) == "A"


def test_figures_and_words_serve_as_letters() -> None:
    options = (Choice("1", "red"), Choice("10", "blue"))
    assert named_option("10", options) == "10"
    assert named_option("Option 1", options) == "1"


def test_yes_and_no_name_the_option_that_begins_with_them() -> None:
    options = (Choice("A", "Yes, it is"), Choice("B", "No, it never was"))
    assert named_option("No", options) == "B"
