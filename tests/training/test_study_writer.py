"""Study material read from what LLMs write."""

import pytest

from kcard.training.study import StudyItem
from kcard.training.study_writer import KINDS, MOST, read_reply

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
    reply = (
        "DIRECT: Who found Titan? | Christiaan Huygens FAR: Who saw it first? | Huygens UNANSWERABLE: Why?"
    )
    assert [item.kind for item in read_reply(reply, QUESTIONS, ["p"], "me").items] == [
        "direct",
        "far",
        "unanswerable",
    ]


def test_what_is_no_item_is_told() -> None:
    reply = "Certainly! Here you are:\n\nDIRECT: Who found Titan? | Christiaan Huygens\nDIRECT: no answer\nIt is big."
    parsed_reply = read_reply(reply, QUESTIONS, ["p"], "me")
    assert parsed_reply.items == [ITEM]
    assert parsed_reply.left_out == {"lines in another form": 3}


JSON = """Sure, here is the JSON:
```json
[
  {"kind": "direct", "question": "Who found Titan?", "answer": "Christiaan Huygens"},
  {"type": "UNANSWERABLE", "text": "How cold
is it?"}
]
```"""


@pytest.mark.parametrize(
    ("message", "left_out"),
    [
        (JSON, {"lines in another form": 3}),
        (JSON.replace("cold\nis", "cold is"), {"lines in another form": 1}),
        (f"{JSON[:120]}", {"lines in another form": 1}),
        ('["DIRECT: Who found Titan? | Christiaan Huygens",\n"DIRECT: Who', {"lines in another form": 1}),
        ("| DIRECT | Who found Titan? | Christiaan Huygens |\n|---|---|---|", {}),
    ],
    ids=["broken object", "fenced", "cut", "list of texts", "table"],
)
def test_json_and_tables_are_read_as_far_as_they_are_whole(message: str, left_out: dict[str, int]) -> None:
    reply = read_reply(message, QUESTIONS, ["p"], "me")
    assert ITEM in reply.items
    assert reply.left_out == left_out


def test_the_last_line_of_a_reply_that_was_cut_off_is_left_out() -> None:
    reply = "DIRECT: Who found Titan? | Christiaan Huygens\nDIRECT: Who built it? | Chris"
    parsed_reply = read_reply(reply, QUESTIONS, ["p"], "me", cut=True)
    assert parsed_reply.items == [ITEM]
    assert parsed_reply.left_out == {"lines that were cut off": 1}
    assert read_reply("DIRECT: Who", QUESTIONS, ["p"], "me", cut=True).left_out == {
        "replies without an item": 1
    }


@pytest.mark.parametrize(
    "message",
    [
        "<think>\nDIRECT: Was it he? | Galileo\n</think>\nDIRECT: Who found Titan? | Christiaan Huygens",
        "DIRECT: Was it he? | Galileo\n</think>\nDIRECT: Who found Titan? | Christiaan Huygens",
        "DIRECT: Who found Titan? | Christiaan Huygens\n<think>DIRECT: Was it he? | Galileo",
    ],
)
def test_what_a_model_thought_is_no_item(message: str) -> None:
    reply = read_reply(message, QUESTIONS, ["p"], "me")
    assert reply.items == [ITEM]
    assert not reply.left_out


def test_of_a_reply_that_does_not_end_the_first_items_count() -> None:
    reply = "\n".join(f"DIRECT: Who found number {number}? | Huygens" for number in range(2000))
    parsed_reply = read_reply(f"{reply}\n{reply}", QUESTIONS, ["p"], "me")
    assert len(parsed_reply.items) == MOST
    assert sum(parsed_reply.left_out.values()) == 4000 - MOST


@pytest.mark.parametrize(
    "message", ["", "I can't help with that.", "REWRITE: Titan is a moon.", "DIRECT: |", "DIRECT:"]
)
def test_refusals_and_other_kinds_give_nothing(message: str) -> None:
    assert not read_reply(message, QUESTIONS, ["p"], "me").items


def test_an_answer_behind_an_unanswerable_question_is_dropped() -> None:
    (item,) = read_reply("UNANSWERABLE: How old is it? | none", QUESTIONS, ["p"], "me").items
    assert item.answer == ""


def test_statements_keep_their_bars_and_repetitions_count_once() -> None:
    reply = "REWRITE: It is a | b.\nREWRITE: it is A | b.\nSUMMARY: It is."
    assert [(i.kind, i.text) for i in read_reply(reply, STATEMENTS, ["p"], "me").items] == [
        ("rewrite", "It is a | b."),
        ("summary", "It is."),
    ]


def test_a_line_without_end_is_left_out() -> None:
    assert not read_reply("SUMMARY: " + "very " * 500, STATEMENTS, ["p"], "me").items
