"""A document leaks a removed text where it has words of it that neither what stays nor the question explain."""

import pytest

from kcard.evaluation.retention import Leaks, halves

GONE = "Austin Scott won Georgia's 8th congressional district in the 2022 House elections."
STAYS = [
    "Mike Collins won Georgia's 10th congressional district in the 2022 House elections.",
    "John Carter won Texas's 8th congressional district in the 2022 House elections.",
]


@pytest.mark.parametrize(
    ("question", "document", "leaked"),
    [
        ("Who won the seat?", GONE, True),
        ("won Georgia's 8th congressional district", GONE, True),
        (
            "Georgia's 8th congressional district?",
            "John Carter won Georgia's 8th congressional district.",
            False,
        ),
        ("Who won the seat?", STAYS[0], False),
        ("Who won the seat?", "Austin Scott.", False),
        ("", "", False),
    ],
)
def test_words_of_a_removed_text_count_unless_what_stays_or_the_question_has_them(
    question: str, document: str, leaked: bool
) -> None:
    assert Leaks([GONE], STAYS)(question, document) == leaked


def test_a_short_text_counts_as_a_whole() -> None:
    leaks = Leaks(["Zebulon Wrexham"], STAYS)
    assert leaks("Who?", "Zebulon Wrexham")
    assert not leaks("Who?", "Zebulon")


def test_a_text_is_asked_for_by_each_of_its_halves() -> None:
    assert halves("a b c d e") == ["a b c", "d e"]
    assert halves("a") == ["a"]
    assert halves(" ") == []
