"""The data sets of Thrust and SKR, in the layouts in which they are published."""

import json
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import UsageError
from kcard.evaluation.tasks.base import TaskData
from kcard.evaluation.tasks.datasets import read_entityquestions
from kcard.evaluation.tasks.papers import (
    plain_alternatives,
    read_agnews,
    read_arc,
    read_boolq,
    read_commonsenseqa,
    read_creak,
    read_curated_trec,
    read_esnli,
    read_openbookqa,
    read_strategyqa,
    read_tabularqa,
    read_temporalqa,
    read_webquestions,
)

STEM = {
    "stem": "Where do fish live?",
    "choices": [{"label": "A", "text": "air"}, {"label": "B", "text": "water"}],
}
NUMBERED = {"label": ["1", "2"], "text": ["air", "water"]}


def lines(folder: Path, *rows: Any) -> Path:
    path = folder / "task.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def only(data: TaskData) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    """The question, the text of the right option or the first answer, all options, and the passages."""
    [item] = data.items
    texts = {choice.name: choice.description for choice in item.choices}
    return item.question, texts.get(item.answers[0], item.answers[0]), tuple(texts.values()), item.passages


@pytest.mark.parametrize(
    ("read", "row", "expected"),
    [
        (
            read_boolq,
            {"question": "is ice cold", "passage": "Ice is cold.", "answer": True},
            ("is ice cold", "Yes", ("Yes", "No"), ("Ice is cold.",)),
        ),
        (
            read_strategyqa,
            {"qid": "a1", "question": "Is fire cold?", "answer": False, "facts": ["Fire is hot."]},
            ("Is fire cold?", "No", ("Yes", "No"), ("Fire is hot.",)),
        ),
        (
            read_creak,
            {"ex_id": "train_1", "sentence": "Ice is hot.", "label": "false", "explanation": "It is cold."},
            ("Is it true or false? Ice is hot.", "False", ("True", "False"), ("It is cold.",)),
        ),
        (
            read_commonsenseqa,
            {"id": "1", "question": STEM, "answerKey": "B"},
            ("Where do fish live?", "water", ("air", "water"), ()),
        ),
        (
            read_arc,
            {"id": "1", "question": "Where do fish live?", "choices": NUMBERED, "answerKey": "2"},
            ("Where do fish live?", "water", ("air", "water"), ()),
        ),
        (
            read_openbookqa,
            {"question_stem": "Fish live in", "choices": NUMBERED, "answerKey": "2", "fact1": "Fish swim."},
            ("Fish live in", "water", ("air", "water"), ("Fish swim.",)),
        ),
        (
            read_esnli,
            {
                "premise": "A man runs.",
                "hypothesis": "A man moves.",
                "label": 0,
                "explanation_1": "To run is to move.",
            },
            (
                "A man runs.\nHow does this relate to it: A man moves.",
                "entailment",
                ("entailment", "neutral", "contradiction"),
                ("To run is to move.",),
            ),
        ),
        (
            read_agnews,
            {"text": "Team wins cup", "label": 1},
            (
                "What is this piece of news about? Team wins cup",
                "Sports",
                ("World", "Sports", "Business", "Sci/Tech"),
                (),
            ),
        ),
        (
            read_webquestions,
            {"utterance": "who won?", "targetValue": '(list (description "Ann B.") (description Bob))'},
            ("who won?", "Ann B.", (), ()),
        ),
        (
            read_curated_trec,
            {"question": "Where is it?", "answer": ["Long\\s?Island|New York", "(a|b)c"]},
            ("Where is it?", "Long Island", (), ()),
        ),
        (
            read_temporalqa,
            {
                "Id": 3,
                "Question": "who ruled then?",
                "Gold answer": ["Ann"],
                "Type": ["Implicit"],
                "passages": [[["Ann ruled."]]],
            },
            ("who ruled then?", "Ann", (), ("Ann ruled.",)),
        ),
        (
            read_tabularqa,
            {"hypothesis": "Ann was born in spring.", "label": "C", "table": "Ann; born: June"},
            ("Ann was born in spring. True or False?", "False", ("True", "False"), ("Ann; born: June",)),
        ),
    ],
)
def test_a_published_layout_is_read(tmp_path: Path, read: Any, row: dict[str, Any], expected: Any) -> None:
    assert only(read(lines(tmp_path, row))) == expected


def test_tables_of_news_have_no_header_and_count_classes_from_one(tmp_path: Path) -> None:
    path = tmp_path / "test.csv"
    path.write_text('"3","Shares fall","A bad day, again."\n"4","New phone","It rings."\n')
    data = read_agnews(path)
    assert [item.label for item in data.items] == ["Business", "Sci/Tech"]
    assert data.items[0].passages == ("A bad day, again.",)


def test_what_has_no_label_or_key_is_skipped(tmp_path: Path) -> None:
    pair = {"premise": "A man runs.", "hypothesis": "A dog runs."}
    assert len(read_esnli(lines(tmp_path, pair | {"label": -1}, pair | {"label": 2})).items) == 1
    blank = {"id": "2", "question": STEM, "answerKey": ""}
    assert (
        len(read_commonsenseqa(lines(tmp_path, {"id": "1", "question": STEM, "answerKey": "A"}, blank)).items)
        == 1
    )
    statement = {"hypothesis": "Ann is tall.", "label": "N"}
    assert len(read_tabularqa(lines(tmp_path, statement, statement | {"label": "E"})).items) == 1


@pytest.mark.parametrize(
    ("read", "row", "message"),
    [
        (
            read_boolq,
            {"question": "is it", "answer": "maybe"},
            "the answer is 'maybe', expected true or false",
        ),
        (
            read_esnli,
            {"premise": "a", "hypothesis": "b", "label": 7},
            "the label is '7', expected one of entailment",
        ),
        (read_esnli, {"premise": "a", "label": 0}, 'expected a "Sentence2" or a "hypothesis" with a text'),
        (
            read_arc,
            {"question": "x", "choices": NUMBERED, "answerKey": "9"},
            "is not one of the options 1, 2",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, read: Any, row: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        read(lines(tmp_path, row))
    assert "line 1" in str(raised.value)


def test_patterns_that_are_no_texts_are_left_out() -> None:
    assert plain_alternatives(r"July\s+4|U\.S\.|\bParis\b|(a|b)c|x{2}") == ["July 4", "U.S.", "Paris"]


def test_entity_questions_take_popularity_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "P17.test.json").write_text(
        json.dumps(
            [
                {"question": "Where is Ulm?", "answers": ["Germany"]},
                {"question": "Where is X?", "answers": ["Y"]},
            ]
        )
    )
    (tmp_path / "popularity.jsonl").write_text('{"question": "where is ulm?", "popularity": 12}\n')
    assert [item.popularity for item in read_entityquestions(tmp_path).items] == [12, None]
