"""Options are read from lists, objects and lines of text; texts without letters get A, B, C and so on."""

from typing import Any

import pytest

from kcard.errors import UsageError
from kcard.questions import choices_of
from kcard.types import Choice

CITIES = (Choice("A", "Rome"), Choice("B", "Paris"))


@pytest.mark.parametrize(
    "written",
    [
        "Rome; Paris",
        "Rome;Paris;",
        "A=Rome; B=Paris",
        "A = Rome;B = Paris",
        ["Rome", "Paris"],
        ["A=Rome", "B=Paris"],
        {"A": "Rome", "B": "Paris"},
        '["Rome", "Paris"]',
        '{"A": "Rome", "B": "Paris"}',
    ],
)
def test_every_form_gives_the_same_options(written: Any) -> None:
    assert choices_of(written) == CITIES


@pytest.mark.parametrize("written", [None, "", " ", [], {}])
def test_nothing_gives_no_options(written: Any) -> None:
    assert choices_of(written) == ()


def test_an_equals_sign_within_a_text_is_no_letter() -> None:
    assert choices_of("x=3; x=4") == (Choice("A", "x=3"), Choice("B", "x=4"))
    assert choices_of(["A=Rome", "Paris"]) == (Choice("A", "A=Rome"), Choice("B", "Paris"))


def test_a_list_keeps_semicolons_and_numbers_become_texts() -> None:
    assert choices_of(["Rome; Italy", 5]) == (Choice("A", "Rome; Italy"), Choice("B", "5"))


def test_letters_may_be_figures() -> None:
    assert choices_of("1=red; 2=blue") == (Choice("1", "red"), Choice("2", "blue"))


def test_a_text_that_only_begins_like_json_is_a_text() -> None:
    assert choices_of("[Rome]; {Paris}") == (Choice("A", "[Rome]"), Choice("B", "{Paris}"))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (5, "choices are 5"),
        ([None, "Paris"], "the choice None"),
        ([True, "Paris"], "the choice True"),
        ([["Rome"]], r"the choice \['Rome'\]"),
        (["x"] * 27, "27 choices without letters"),
    ],
)
def test_what_is_no_option_is_named(written: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choices_of(written)
