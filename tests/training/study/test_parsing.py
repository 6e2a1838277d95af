"""Study material read from what LLMs write."""

import pytest

from kcard.training.study.item import StudyItem
from kcard.training.study.parsing import read_reply
from kcard.training.study.tasks import KINDS

QUESTIONS, STATEMENTS = KINDS["questions"], KINDS["statements"]
ITEM = StudyItem("direct", "Who found Titan?", "Christiaan Huygens", ("p",), "me")


@pytest.mark.parametrize(
    "line",
    [
        "DIRECT: Who found Titan? | Christiaan Huygens",
        "1. **DIRECT:** Who found Titan? | **Christiaan Huygens**",
        "- direct : Who found Titan?|Christiaan Huygens",
        '* DIRECT 2: "Who found Titan?" | "Christiaan Huygens"',
    ],
)
def test_lines_are_read_as_models_write_them(line: str) -> None:
    assert read_reply(line, QUESTIONS, ["p"], "me").items == [ITEM]


def test_items_may_stand_on_one_line() -> None:
    said = "DIRECT: Who found Titan? | Christiaan Huygens FAR: Who saw it first? | Huygens UNANSWERABLE: Why?"
    assert [item.kind for item in read_reply(said, QUESTIONS, ["p"], "me").items] == [
        "direct",
        "far",
        "unanswerable",
    ]


def test_what_is_no_item_is_told() -> None:
    said = "Certainly! Here you are:\n\nDIRECT: Who found Titan? | Christiaan Huygens\nDIRECT: no answer\nIt is big."
    found = read_reply(said, QUESTIONS, ["p"], "me")
    assert found.items == [ITEM]
    assert found.unread == ["Certainly! Here you are:", "DIRECT: no answer", "It is big."]


@pytest.mark.parametrize(
    "said", ["", "I can't help with that.", "REWRITE: Titan is a moon.", "DIRECT: |", "DIRECT:"]
)
def test_refusals_and_other_kinds_give_nothing(said: str) -> None:
    assert not read_reply(said, QUESTIONS, ["p"], "me").items


def test_an_answer_behind_an_unanswerable_question_is_dropped() -> None:
    (item,) = read_reply("UNANSWERABLE: How old is it? | none", QUESTIONS, ["p"], "me").items
    assert item.answer == ""


def test_statements_keep_their_bars_and_repetitions_count_once() -> None:
    said = "REWRITE: It is a | b.\nREWRITE: it is A | b.\nSUMMARY: It is."
    assert [(i.kind, i.text) for i in read_reply(said, STATEMENTS, ["p"], "me").items] == [
        ("rewrite", "It is a | b."),
        ("summary", "It is."),
    ]


def test_a_line_without_end_is_left_out() -> None:
    assert not read_reply("SUMMARY: " + "very " * 500, STATEMENTS, ["p"], "me").items
