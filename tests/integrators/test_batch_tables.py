"""Questions in a table: its rows are answered like lines of JSON, and its other columns pass through."""

import json
from pathlib import Path

import pytest

from kcard.errors import UsageError
from kcard.integrators.batch_files import answer_file, earlier_lines, read_questions
from kcard.integrators.pipeline import Pipeline

TABLE = 'id,question,note\n7,"Who, exactly?",a\n8,"Is it\nso?",\n'
ROWS = [
    {"id": "7", "question": "Who, exactly?", "note": "a"},
    {"id": "8", "question": "Is it\nso?", "note": ""},
]


@pytest.mark.parametrize(
    ("name", "text"), [("q.csv", TABLE), ("q.CSV", "\ufeff" + TABLE.replace("\n", "\r\n"))]
)
def test_a_table_is_read_row_by_row(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    found = read_questions(path)
    assert [{key: value.replace("\r\n", "\n") for key, value in row.items()} for row in found] == ROWS


def test_a_row_of_more_cells_than_columns_loses_only_those(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question\nWho?,stray,cells\n", encoding="utf-8")
    assert read_questions(tmp_path / "q.csv") == [{"question": "Who?"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("query,id\nWho?,1\n", "has no column 'question'; its columns are query, id"),
        ("", "contains no questions"),
        ("question\n", "contains no questions"),
        ('question\n"Who?\n', "line 2: not CSV: unexpected end"),
    ],
)
def test_a_table_that_is_no_list_of_questions_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "q.csv").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said) as error:
        read_questions(tmp_path / "q.csv")
    assert "\n" not in str(error.value)


def test_a_table_is_answered_and_gone_on_with(tmp_path: Path) -> None:
    source, target = tmp_path / "q.csv", tmp_path / "out.jsonl"
    source.write_text(TABLE, encoding="utf-8")
    rows = read_questions(source)
    pipeline = Pipeline(mode="direct", llm=lambda _: "Ada")
    assert answer_file(rows, target, pipeline.answers).answered == 2
    lines = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [(line["id"], line["note"], line["answer"]) for line in lines] == [
        ("7", "a", "Ada"),
        ("8", "", "Ada"),
    ]
    assert earlier_lines(rows, target, resume=True) == lines
