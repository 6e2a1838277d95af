"""A step for many questions is run again for those that did not fail, with as few repetitions as possible."""

from collections.abc import Sequence
from typing import Any

import pytest

from kcard.errors import KcardError, LLMError, QuestionsFailed, UsageError
from kcard.questions import (
    MAX_QUESTION_CHARACTERS,
    all_checked,
    checked,
    choices_of,
    run_step,
)
from kcard.types import Choice, Question
from tests.fakes import questions


class Step:
    """Shouts; fails on some questions, and names them if it `names` what failed."""

    def __init__(self, fails: Sequence[str], names: bool) -> None:
        self.fails, self.names, self.sizes = set(fails), names, list[int]()

    def __call__(self, questions: Sequence[Question]) -> list[str]:
        self.sizes.append(len(questions))
        failures: dict[Question, LLMError] = {
            q: LLMError(f"no {q.text}") for q in questions if q.text in self.fails
        }
        if failures:
            raise QuestionsFailed(failures) if self.names else UsageError("one of them is bad")
        return [q.text.upper() for q in questions]


@pytest.mark.parametrize(("names", "most"), [(True, 2), (False, 21)])
def test_one_bad_question_of_a_thousand_fails_alone_and_costs_few_runs(names: bool, most: int) -> None:
    step, asked = Step(["q700"], names), questions(*(f"q{n}" for n in range(1000)))
    results, failures = run_step(step, asked)
    assert len(results) == 999
    assert results[asked[0]] == "Q0"
    assert [str(failures[asked[700]])] == ["no q700" if names else "one of them is bad"]
    assert len(step.sizes) <= most


def test_where_all_fail_each_has_its_error() -> None:
    for names in (True, False):
        results, failures = run_step(Step(["a", "b", "c"], names), questions("a", "b", "c"))
        assert results == {}
        assert len(failures) == 3
        assert all(isinstance(error, KcardError) for error in failures.values())


def test_an_error_of_another_library_passes() -> None:
    def broken(_: Sequence[Question]) -> list[str]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_step(broken, questions("a", "b"))
    assert run_step(broken, []) == ({}, {})


@pytest.mark.parametrize("options", [(), (Choice("A", "x" * 9_000), Choice("B", "y" * 9_000))])
def test_a_question_has_a_limit_which_its_options_count_towards(options: tuple[Choice, ...]) -> None:
    room = MAX_QUESTION_CHARACTERS - sum(len(option.name + option.description) for option in options)
    assert checked(Question("q" * room, options)).text == "q" * room
    with pytest.raises(UsageError, match="the question has 20,001 characters: shorten it to 20,000 or fewer"):
        checked(Question("q" * (room + 1), options))


# Options are read from lists, objects and lines of text; texts without letters get A, B, C and so on.


CITIES = {"A": "Rome", "B": "Paris"}


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("Rome; Paris", CITIES),
        ("Rome;Paris;", CITIES),
        ("A=Rome; B=Paris", CITIES),
        ("A = Rome;B = Paris", CITIES),
        (["Rome", "Paris"], CITIES),
        (["A=Rome", "B=Paris"], CITIES),
        (CITIES, CITIES),
        ('["Rome", "Paris"]', CITIES),
        ('{"A": "Rome", "B": "Paris"}', CITIES),
        (None, {}),
        (" ", {}),
        ([], {}),
        ("x=3; x=4", {"A": "x=3", "B": "x=4"}),
        (["A=Rome", "Paris"], {"A": "A=Rome", "B": "Paris"}),
        (["Rome; Italy", 5], {"A": "Rome; Italy", "B": "5"}),
        ("1=red; 2=blue", {"1": "red", "2": "blue"}),
        ("[Rome]; {Paris}", {"A": "[Rome]", "B": "{Paris}"}),
    ],
)
def test_options_are_read_from_every_form(written: Any, options: dict[str, str]) -> None:
    assert choices_of(written) == tuple(Choice(name, text) for name, text in options.items())


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


def test_one_question_is_no_list_of_questions() -> None:
    with pytest.raises(UsageError, match=r"pass \[question\]"):
        all_checked("Who won?")
    assert all_checked(["Who won?"]) == [Question("Who won?")]
