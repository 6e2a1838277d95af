"""The data sets of Thrust and SKR, in the layouts in which they are published."""

import json
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import UsageError
from kcard.evaluation.tasks.base import read_task

LISTED = {
    "stem": "Where do fish live?",
    "choices": [{"label": "A", "text": "air"}, {"label": "B", "text": "sea"}],
}
NUMBERED = {"label": ["1", "2"], "text": ["air", "sea"]}
PAIR = {"premise": "A man runs.", "hypothesis": "A man moves."}
TRUE_FALSE, RELATIONS = ("True", "False"), ("entailment", "neutral", "contradiction")


def write_lines(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "task.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# The question, its first answer (a letter where there are options), options, label and passage.
@pytest.mark.parametrize(
    ("task", "row", "expected"),
    [
        (
            "boolq",
            {"question": "is ice cold", "passage": "Ice is cold.", "answer": True},
            ("is ice cold", "A", ("Yes", "No"), "Yes", "Ice is cold."),
        ),
        (
            "strategyqa",
            {"qid": "a1", "question": "Is fire cold?", "answer": False, "facts": ["Fire is hot."]},
            ("Is fire cold?", "B", ("Yes", "No"), "No", "Fire is hot."),
        ),
        (
            "creak",
            {"ex_id": "train_1", "sentence": "Ice is hot.", "label": "false", "explanation": "It is cold."},
            ("Is it true or false? Ice is hot.", "B", TRUE_FALSE, "False", "It is cold."),
        ),
        (
            "tabularqa",
            {"hypothesis": "Ann is young.", "label": "C", "table": "Ann; age: 99"},
            ("Ann is young. True or False?", "B", TRUE_FALSE, "False", "Ann; age: 99"),
        ),
        (
            "esnli",
            {**PAIR, "label": 2, "explanation_1": "To run is to move."},
            (
                "A man runs.\nHow does this relate to it: A man moves.",
                "C",
                RELATIONS,
                "contradiction",
                "To run is to move.",
            ),
        ),
        (
            "agnews",
            {"text": "Team wins cup", "label": 1},
            (
                "What is this piece of news about? Team wins cup",
                "B",
                ("World", "Sports", "Business", "Sci/Tech"),
                "Sports",
                "",
            ),
        ),
        (
            "commonsenseqa",
            {"id": "1", "question": LISTED, "answerKey": "B"},
            ("Where do fish live?", "B", ("air", "sea"), "", ""),
        ),
        (
            "arc",
            {"id": "1", "question": "Where do fish live?", "choices": NUMBERED, "answerKey": "2"},
            ("Where do fish live?", "2", ("air", "sea"), "", ""),
        ),
        (
            "openbookqa",
            {"question_stem": "Fish live in", "choices": NUMBERED, "answerKey": "2", "fact1": "Fish swim."},
            ("Fish live in", "2", ("air", "sea"), "", "Fish swim."),
        ),
        (
            "webquestions",
            {"utterance": "who won?", "targetValue": '(list (description "Ann B.") (description Bob))'},
            ("who won?", "Ann B.", (), "", ""),
        ),
        (
            "curatedtrec",
            {"question": "When is it?", "answer": ["(a|b)c|x{2}", "July\\s+4|U\\.S\\."]},
            ("When is it?", "July 4", (), "", ""),
        ),
        (
            "temporalqa",
            {
                "Id": 3,
                "Question": "who ruled then?",
                "Gold answer": ["Ann"],
                "passages": [[["Ann ruled.", 1]]],
            },
            ("who ruled then?", "Ann", (), "", "Ann ruled."),
        ),
    ],
)
def test_a_published_layout_is_read(tmp_path: Path, task: str, row: dict[str, Any], expected: Any) -> None:
    [item] = read_task(task, write_lines(tmp_path, row)).items
    options = tuple(choice.description for choice in item.choices)
    assert (item.question, item.answers[0], options, item.label, "".join(item.passages)) == expected


def test_tables_of_news_have_no_header_and_count_classes_from_one(tmp_path: Path) -> None:
    path = tmp_path / "test.csv"
    path.write_text('"3","Shares fall","A bad day, again."\n"4","New phone","It rings."\n')
    data = read_task("agnews", path)
    assert [item.label for item in data.items] == ["Business", "Sci/Tech"]
    assert data.items[0].passages == ("A bad day, again.",)


@pytest.mark.parametrize(
    ("task", "kept", "skipped"),
    [
        ("esnli", PAIR | {"label": "neutral"}, PAIR | {"label": -1}),
        ("commonsenseqa", {"question": LISTED, "answerKey": "A"}, {"question": LISTED, "answerKey": ""}),
        ("tabularqa", {"hypothesis": "Ann is tall.", "label": "E"}, {"hypothesis": "Bo is.", "label": "N"}),
        ("curatedtrec", {"question": "When?", "answer": ["4"]}, {"question": "Who?", "answer": ["a.*b"]}),
    ],
)
def test_what_has_no_label_or_key_is_skipped(
    tmp_path: Path, task: str, kept: dict[str, Any], skipped: dict[str, Any]
) -> None:
    assert len(read_task(task, write_lines(tmp_path, skipped, kept)).items) == 1


@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        (
            "boolq",
            {"question": "is it", "answer": "maybe"},
            "the answer 'maybe' is not one of the options A, B",
        ),
        ("esnli", PAIR | {"label": 7}, "the answer '7' is not one of the options A, B, C"),
        ("esnli", {"premise": "a", "label": 0}, 'expected a "question" with a text'),
        ("creak", {"sentence": "a"}, "there is no answer"),
        ("arc", {"question": "x", "choices": NUMBERED, "answerKey": "9"}, "is not one of the options 1, 2"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, task: str, row: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        read_task(task, write_lines(tmp_path, row))
    assert "line 1" in str(raised.value)
