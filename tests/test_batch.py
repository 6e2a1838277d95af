"""A file of questions: keys pass through, a failed question costs its own line only."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kcard.answer import Answer, Decision, Passage
from kcard.batch import answer_file, read_questions
from kcard.errors import LLMError, UsageError

GATE = Decision("always", 0.0, fired=True)


def shout(questions: Sequence[str]) -> list[Answer]:
    if "fail" in questions:
        raise LLMError("the endpoint is down")
    return [Answer(q, q.upper(), "direct", GATE, ("c",), (Passage("c", "t"),), 1, 0.1) for q in questions]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_keys_pass_through_in_order_and_the_answer_follows(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert answer_file([{"id": 7, "question": "a", "gold": ["A"]}], out, shout) == 0
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
    assert answer_file(rows, out, shout) == 4
    found = lines(out)
    assert [r.get("answer") for r in found] == ["A", None, "C", None, None, None]
    assert found[1] == {"question": "fail", "error": "the endpoint is down"}


def test_more_questions_than_a_batch_keep_their_order(tmp_path: Path) -> None:
    done: list[int] = []
    rows = [{"question": f"q{i}"} for i in range(40)]
    answer_file(rows, tmp_path / "out.jsonl", shout, done.append)
    assert [r["answer"] for r in lines(tmp_path / "out.jsonl")] == [f"Q{i}" for i in range(40)]
    assert done == [16, 32, 40]


@pytest.mark.parametrize("text", ["not json", "[1]", ""])
def test_a_file_that_is_not_questions_is_refused_before_anything_is_asked(tmp_path: Path, text: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"questions\.jsonl"):
        read_questions(path)
