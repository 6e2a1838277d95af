"""A file of questions: keys pass through, a failed question costs its own line only, a broken run is gone on with."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcard.errors import LLMError, UsageError
from kcard.integrators.batch_files import (
    QuestionTotals,
    answer_file,
    earlier_lines,
    read_questions,
)
from kcard.integrators.pipeline import Pipeline
from kcard.trace import Usage
from kcard.types import Answer, Decision, Passage, Question
from tests.fakes import counts_to

GATE = Decision("always", 0.0, fired=True)


def text(question: str | Question) -> str:
    return question if isinstance(question, str) else question.text


def shout(questions: Sequence[str | Question]) -> Iterator[Answer | LLMError]:
    for t in map(text, questions):
        answer = Answer(t, t.upper(), "direct", GATE, ("c",), (Passage("c", "t"),), 1, 0.1)
        yield LLMError("the endpoint is down") if t == "fail" else answer


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_keys_pass_through_in_order_and_the_answer_follows(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert answer_file([{"id": 7, "question": "a", "gold": ["A"]}], out, shout) == QuestionTotals(
        1, 0, 1, None, None
    )
    (row,) = lines(out)
    assert list(row) == [
        "id",
        "question",
        "gold",
        "answer",
        "mode",
        "gate",
        "cards",
        "passages",
        "calls",
        "seconds",
    ]
    assert (row["id"], row["answer"]) == (7, "A")
    assert "error" not in row


def test_a_failed_question_is_a_line_with_an_error_and_the_others_are_answered(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    rows: list[dict[str, Any]] = [{"question": q} for q in ("a", "fail", "c", 3, " ")]
    rows.append({"id": 1})
    totals = answer_file(rows, out, shout)
    assert (totals.answered, totals.failed, totals.calls) == (2, 4, 2)
    found = lines(out)
    assert [r.get("answer") for r in found] == ["A", None, "C", None, None, None]
    assert found[1] == {"question": "fail", "error": "the endpoint is down"}


def test_a_question_that_is_too_long_costs_its_own_line_only(tmp_path: Path) -> None:
    out, long = tmp_path / "out.jsonl", "x" * 20_001
    answer_file(
        [{"question": "a"}, {"question": long}, {"question": "b"}], out, Pipeline(mode="direct").outcomes
    )
    first, refused, last = lines(out)
    assert "20,001 characters" in str(refused["error"])
    assert "error" not in first
    assert "error" not in last


def test_more_questions_than_a_batch_keep_their_order(tmp_path: Path) -> None:
    done: list[tuple[int, int | None]] = []
    rows = [{"question": f"q{i}"} for i in range(40)]
    answer_file(rows, tmp_path / "out.jsonl", shout, counts_to(done))
    assert [r["answer"] for r in lines(tmp_path / "out.jsonl")] == [f"Q{i}" for i in range(40)]
    assert done == [(n, 40) for n in range(1, 41)]


@pytest.mark.parametrize("text", ["not json", "[1]", ""])
def test_a_file_that_is_not_questions_is_refused_before_anything_is_asked(tmp_path: Path, text: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"questions\.jsonl"):
        read_questions(path)


class Counting:
    """Shouts, and remembers what it was asked; stops at a question as Ctrl-C does."""

    def __init__(self, stop: str | None = None) -> None:
        self.asked: list[str] = []
        self.stop = stop

    def __call__(self, questions: Sequence[str | Question]) -> Iterator[Answer | LLMError]:
        for question in map(text, questions):
            if question == self.stop:
                raise KeyboardInterrupt
            self.asked.append(question)
            yield from shout([question])


ROWS = [{"id": i, "question": f"q{i}"} for i in range(5)]


def test_a_run_that_was_interrupted_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        answer_file(ROWS, out, Counting(stop="q3"))
    assert [r["id"] for r in lines(out)] == [0, 1, 2]
    again = Counting()
    answer_file(ROWS, out, again, earlier=earlier_lines(ROWS, out, resume=True))
    assert again.asked == ["q3", "q4"]
    assert [r["answer"] for r in lines(out)] == [f"Q{i}" for i in range(5)]


@pytest.mark.parametrize("left", [1, 9, 40])
def test_a_half_written_line_is_written_again(tmp_path: Path, left: int) -> None:
    out = tmp_path / "out.jsonl"
    answer_file(ROWS, out, shout)
    whole = out.read_bytes()
    second = whole.index(b"\n") + 1
    out.write_bytes(whole[: second + left])
    again = Counting()
    answer_file(ROWS, out, again, earlier=earlier_lines(ROWS, out, resume=True))
    assert again.asked == ["q1", "q2", "q3", "q4"]
    assert out.read_bytes() == whole


def test_rows_that_failed_are_asked_again_and_keep_their_place(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    rows = [{"question": q} for q in ("a", "fail", "c")]
    answer_file(rows, out, shout)
    again = Counting()
    totals = answer_file(
        rows,
        out,
        lambda questions: again([text(q).replace("fail", "mended") for q in questions]),
        earlier=earlier_lines(rows, out, resume=True),
    )
    assert again.asked == ["mended"]
    assert (totals.answered, totals.failed) == (1, 0)
    assert [r["answer"] for r in lines(out)] == ["A", "MENDED", "C"]
    assert "error" not in lines(out)[1]
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize(
    "changed",
    [ROWS[:2], [{"id": 0, "question": "other"}, *ROWS[1:]], [{"id": 9, "question": "q0"}, *ROWS[1:]]],
)
def test_a_changed_input_is_noticed(tmp_path: Path, changed: list[dict[str, Any]]) -> None:
    out = tmp_path / "out.jsonl"
    answer_file(ROWS[:3], out, shout)
    before = out.read_bytes()
    with pytest.raises(UsageError, match="input, which has changed"):
        earlier_lines(changed, out, resume=True)
    assert out.read_bytes() == before


def test_an_output_is_never_overwritten_unasked(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert earlier_lines(ROWS, out, resume=False) == []
    answer_file(ROWS, out, shout)
    with pytest.raises(UsageError, match="--resume"):
        earlier_lines(ROWS, out, resume=False)
    assert len(earlier_lines(ROWS, out, resume=True)) == 5


def test_an_endpoint_that_is_down_is_given_up_on_and_nothing_is_lost(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    rows = [{"question": "a"}, *({"question": "fail"} for _ in range(100))]
    with pytest.raises(LLMError, match=r"16 consecutive failures.*--resume"):
        answer_file(rows, out, shout)
    assert [("error" in r) for r in lines(out)] == [False] + [True] * 16


def test_tokens_are_summed_where_all_are_known(tmp_path: Path) -> None:
    def counted(questions: Sequence[str | Question]) -> Iterator[Answer]:
        return (replace(a, usage=Usage(10, 2)) for a in shout(questions) if isinstance(a, Answer))

    totals = answer_file(ROWS, tmp_path / "out.jsonl", counted)
    assert (totals.tokens_in, totals.tokens_out) == (50, 10)
    assert lines(tmp_path / "out.jsonl")[0]["usage"] == {
        "tokens_in": 10,
        "tokens_out": 2,
        "llm_seconds": 0.0,
        "card_seconds": 0.0,
    }


def test_so_many_questions_are_asked_at_a_time_as_a_batch_has(tmp_path: Path) -> None:
    asked: list[int] = []

    def counted(questions: Sequence[str | Question]) -> Iterator[Answer | LLMError]:
        asked.append(len(questions))
        return shout(questions)

    rows = [{"question": f"q{n}"} for n in range(50)]
    answer_file(rows, tmp_path / "few.jsonl", counted)
    answer_file(rows, tmp_path / "many.jsonl", counted, batch=40)
    assert asked == [16, 16, 16, 2, 40, 10]


# Questions in a table: its rows are answered like lines of JSON, and its other columns pass through.

TABLE = 'id,question,note\n7,"Who, exactly?",a\n8,"Is it\nso?",\n'
ROWS_OF_BATCH_TABLES = [
    {"id": "7", "question": "Who, exactly?", "note": "a"},
    {"id": "8", "question": "Is it\nso?", "note": ""},
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.csv", TABLE),
        ("q.CSV", "\ufeff" + TABLE.replace("\n", "\r\n")),
        ("stray.csv", TABLE.replace(",a\n", ",a,stray,cells\n")),
    ],
)
def test_a_table_is_read_row_by_row(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    found = read_questions(path)
    assert [
        {key: value.replace("\r\n", "\n") for key, value in row.items()} for row in found
    ] == ROWS_OF_BATCH_TABLES


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
