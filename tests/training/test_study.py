"""Files of study material, and what a card learns of them."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kcard.errors import UsageError
from kcard.events import Event, ignore
from kcard.llms.embedded_llm import SpanReader
from kcard.selectors.registry import Loading, make
from kcard.text import passage_digest
from kcard.training.embedded.pseudo_queries import PseudoQueries
from kcard.training.study import (
    StudyItem,
    make_study_queries,
    match_queries,
    read_study,
    write_study,
)
from kcard.training.study_writer import KINDS, MAX_REPLY_ITEMS, assignments, check_item, read_reply
from kcard.types import Source

TITAN = "Titan is the largest moon of Saturn. Christiaan Huygens discovered Titan in 1655 from his house in The Hague."
RHEA = "Rhea is the second largest moon of Saturn. Giovanni Cassini discovered Rhea in 1672 at the Paris Observatory."
ITEMS = (
    StudyItem("direct", "Who found Titan?", "Christiaan Huygens", (passage_digest(TITAN),), "me"),
    StudyItem("reverse", "What is the largest moon of Saturn?", "Titan", (passage_digest(TITAN),), "me"),
    StudyItem("unanswerable", "How cold is Titan?", "", (passage_digest(TITAN),), "me"),
    StudyItem("direct", "Who found Io?", "Galileo", ("0" * 64,), "me"),
    StudyItem("rewrite", "Huygens found Titan.", "", (passage_digest(TITAN),), "me", 0.9),
)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_study(tmp_path / "new" / "study.jsonl", ITEMS)
    assert read_study(tmp_path / "new" / "study.jsonl").items == [*ITEMS]


def test_each_broken_line_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    """As editors on Windows, scripts and people leave them."""
    path = tmp_path / "study.jsonl"
    item = b'{"kind": "direct", "text": "Who found %s?", "answer": "Huygens", "passages": ["a"]%s}'
    lines = {
        b"\xef\xbb\xbf" + item % (b"Titan", b""): None,
        item % (b"TITAN", b""): "repeats an earlier item",
        item % (b"M\xfcnchen", b""): "not UTF-8 text",
        item % (b"x" * 3_000_000, b""): "more than 2,000 characters",
        item % (b"Io", b', "support": NaN'): "support is nan",
        item % (b"Io", b', "support": 2'): "support is 2",
        item % (b"Io", b', "support": "high"'): "support must be a number",
        item % (b"Io", b', "mood": "good"'): "unknown key 'mood'",
        item % (b"Io\\ud800", b""): "a lone surrogate",
        (item % (b"Io", b""))[:-5]: "Expecting",
        b'["direct"]': "must be an object",
        b'{"kind": "direct", "text": "Who?", "passages": "a"}': "passages must be a list",
        b"[" * 100_000: "nested too deeply",
        item % (b"Rhea", b""): None,
    }
    path.write_bytes(b"\r\n".join(lines) + b"\r\n \r\n")
    study = read_study(path)
    assert [item.text for item in study.items] == ["Who found Titan?", "Who found Rhea?"]
    expected = [(number, why) for number, why in enumerate(lines.values(), 1) if why]
    assert [int(line.split(":")[0].removeprefix("line ")) for line in study.broken] == [
        n for n, _ in expected
    ]
    for reason, (_, why) in zip(study.broken, expected, strict=True):
        assert why in reason
        assert len(reason) < 300


@pytest.mark.parametrize("content", ["", "{}\n", "\n\n"])
def test_a_file_without_items_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "s.jsonl").write_text(content)
    with pytest.raises(UsageError, match=r"s\.jsonl contains no valid item"):
        read_study(tmp_path / "s.jsonl")
    with pytest.raises(UsageError, match="can't be read"):
        read_study(tmp_path / "none.jsonl")


def test_items_go_with_the_statement_that_they_are_about() -> None:
    """A short passage is one statement, a long one a statement a sentence."""
    short, _ = match_queries(ITEMS, [Source(TITAN), Source(RHEA)])
    assert short == {
        TITAN: ["Who found Titan?", "What is the largest moon of Saturn?", "Huygens found Titan."]
    }
    long = f"{TITAN} {'It has a thick atmosphere of nitrogen and lakes of methane near both of its cold poles. ' * 4}"
    about_it = [replace(item, passages=(passage_digest(long),)) for item in ITEMS]
    assert match_queries(about_it, [Source(long)])[0] == {
        "Christiaan Huygens discovered Titan in 1655 from his house in The Hague.": [
            "Who found Titan?",
            "Huygens found Titan.",
        ],
        "Titan is the largest moon of Saturn.": ["What is the largest moon of Saturn?"],
    }


def test_what_is_learned_of_a_file_is_reported_and_recorded(tmp_path: Path) -> None:
    path, events = tmp_path / "study.jsonl", list[Event]()
    write_study(path, ITEMS)
    path.write_text(path.read_text() + "broken\n" * 7)
    study = make_study_queries(read_study(path, events.append), [Source(TITAN)], events.append)
    assert study.record["study_items"] == 3
    notes = [event.message for event in events if event.is_note]
    assert len(notes) == 7
    assert "2 more lines" in notes[-2]
    assert "3 queries out of 5 items" in notes[-1]
    assert "1 that the passage leaves open" in notes[-1]
    assert "1 about passages that are not in the corpus" in notes[-1]


def test_material_about_another_corpus_is_an_error(tmp_path: Path) -> None:
    write_study(tmp_path / "study.jsonl", ITEMS)
    with pytest.raises(
        UsageError, match=r"none of its 5 items is about a passage of the corpus: .* `kcard study`"
    ):
        make_study_queries(
            read_study(tmp_path / "study.jsonl", ignore), [Source("Mimas is a small moon.")], ignore
        )


def test_pseudo_queries_are_partly_queries_of_the_study_material() -> None:
    ask = PseudoQueries([TITAN, RHEA], {TITAN: ["Who saw it first?"]})
    rng = Random(0)
    questions = [ask(TITAN, rng, noised=False) for _ in range(200)]
    assert 70 < questions.count("Who saw it first?") < 150
    assert "Who saw it first?" not in {ask(RHEA, rng, noised=False) for _ in range(50)}


def test_links_are_asked_about_passages_that_share_a_rare_name() -> None:
    other = "Huygens also described the rings of Saturn, which Galileo had taken for two moons of the same planet."
    passages = [Source(TITAN), Source(RHEA), Source(other)]
    pairs = [assignment.passages for assignment in assignments(passages, ["links"])]
    assert pairs == [(passages[0], passages[2]), (passages[1], passages[2])]


def test_short_passages_are_not_asked_about() -> None:
    pairs = [*assignments([Source("Io is a moon."), Source(TITAN)], ["questions", "statements"])]
    assert [(a.task, a.passages[0].text) for a in pairs] == [("questions", TITAN), ("statements", TITAN)]


PASSAGE = (
    "Titan is the largest moon of Saturn. The Dutch astronomer Christiaan Huygens discovered it in 1655 with a "
    "telescope that he and his brother had built."
)


def result(item: StudyItem) -> StudyItem | str:
    return check_item(item, [PASSAGE], make("checker", "minilm", Loading()), SpanReader(), "en")


@pytest.mark.parametrize(
    "item",
    [
        StudyItem("direct", "Who discovered Titan?", "Christiaan Huygens"),
        StudyItem("reverse", "Which moon did Christiaan Huygens discover in 1655?", "Titan"),
        StudyItem("far", "Whose eyes first fell on Saturn's biggest companion?", "Christiaan Huygens"),
        StudyItem("unanswerable", "How many rings does Neptune have?"),
    ],
)
def test_questions_that_the_passage_answers_are_kept(item: StudyItem) -> None:
    assert result(item) == item


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (StudyItem("direct", "Who discovered Titan?", "Galileo Galilei"), "the answer does not stand"),
        (StudyItem("direct", "Did Huygens discover it?", "Huygens"), "gives the answer away"),
        (StudyItem("direct", "When was Titan discovered?", "Saturn"), "another answer or none"),
        (StudyItem("unanswerable", "Who discovered Titan?"), "answered by the passage"),
        (StudyItem("implication", "Galileo discovered Titan in 1610."), "not supported"),
        (
            StudyItem("implication", "The passage implies that Titan was discovered in 1655."),
            "mentions the text",
        ),
        (StudyItem("direct", "According to the text, who discovered Titan?", "Huygens"), "mentions the text"),
        (StudyItem("unanswerable", "http://example.org"), "about something else"),
        (
            StudyItem("far", "Who sells the cheapest football boots in town?", "Huygens"),
            "about something else",
        ),
        (
            StudyItem("far", "Welcher Mensch hat den größten Mond zuerst gesehen?", "Huygens"),
            "another language",
        ),
        (StudyItem("rewrite", "titan is the largest moon of saturn"), "repeats the passage"),
    ],
)
def test_what_is_not_supported_is_left_out_with_its_reason(item: StudyItem, why: str) -> None:
    outcome = result(item)
    assert isinstance(outcome, str)
    assert why in outcome


def test_passages_in_other_languages_are_not_judged_by_an_encoder_that_knows_english_alone() -> None:
    text = "Titan ist der größte Mond des Saturn. Der Astronom Christiaan Huygens hat ihn 1655 in Den Haag entdeckt."
    item = StudyItem(
        "far", "Wessen Auge fiel zuerst auf den größten Begleiter des Ringplaneten?", "Christiaan Huygens"
    )
    assert check_item(item, [text], make("checker", "minilm", Loading()), SpanReader(), "de") == item


def test_a_corpus_about_texts_may_be_asked_about_them() -> None:
    text = "The passage from Homer that Virgil knew best is the one on the shield. The text was copied in Rome in 1450."
    item = StudyItem("direct", "When was the text copied in Rome?", "1450")
    assert check_item(item, [text], make("checker", "minilm", Loading()), SpanReader(), "en") == item


@pytest.mark.parametrize(
    "message",
    [
        "The largest moon of Saturn was discovered in the seventeenth century.",
        "Titan was known in the eighteenth century.",
    ],
)
def test_what_follows_needs_less_support_than_what_is_said_again(message: str) -> None:
    assert isinstance(result(StudyItem("implication", message)), StudyItem)
    assert result(StudyItem("rewrite", message)) == "not supported by the passage"


def test_statements_get_their_support() -> None:
    outcome = result(StudyItem("rewrite", "Christiaan Huygens discovered Titan in 1655."))
    assert isinstance(outcome, StudyItem)
    assert (outcome.support or 0) > 0.5


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
    assert len(parsed_reply.items) == MAX_REPLY_ITEMS
    assert sum(parsed_reply.left_out.values()) == 4000 - MAX_REPLY_ITEMS


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
