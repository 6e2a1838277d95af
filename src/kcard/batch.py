"""Many questions from a file to a file: one JSON object a line, a failed question costs its own line only."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kcard.answer import Answer
from kcard.errors import KcardError, UsageError

__all__ = ["answer_file", "read_questions"]

BATCH = 16


def read_questions(path: Path) -> list[dict[str, Any]]:
    """Every line of a JSONL file; UsageError names the first line that is not a JSON object."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UsageError(f"--input {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--input {path} can't be read: {error}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}:{number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{number} must be an object with the key 'question'")
        rows.append(row)
    if not rows:
        raise UsageError(f"--input {path} holds no question")
    return rows


def answer_file(
    rows: Sequence[dict[str, Any]],
    output: Path,
    answer: Callable[[Sequence[str]], list[Answer]],
    report: Callable[[int], None] | None = None,
) -> int:
    """Write each row, its keys passed through in order, with its answer or an `error`; return the failures.

    Lines are written as batches are done, so that what was answered survives an interruption.
    """
    failures = done = 0
    with output.open("w", encoding="utf-8") as stream:
        for chunk in _batched(rows, BATCH):
            for row, result in zip(chunk, _answers(chunk, answer), strict=True):
                failures += "error" in result
                stream.write(json.dumps({**row, **result}, ensure_ascii=False) + "\n")
            stream.flush()
            done += len(chunk)
            if report:
                report(done)
    return failures


def _batched(rows: Sequence[dict[str, Any]], size: int) -> Iterator[Sequence[dict[str, Any]]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _answers(
    rows: Sequence[dict[str, Any]], answer: Callable[[Sequence[str]], list[Answer]]
) -> Iterator[dict[str, Any]]:
    """A batch that fails is asked again one by one, so that one bad question does not cost the others."""
    valid = [row["question"] for row in rows if _is_question(row)]
    try:
        answers = iter(answer(valid))
        found = [next(answers) if _is_question(row) else None for row in rows]
    except KcardError as error:
        if len(rows) > 1:
            for row in rows:
                yield from _answers([row], answer)
            return
        yield {"error": str(error)}
        return
    for a in found:
        yield {"error": "the key 'question' must hold a non-empty text"} if a is None else a.to_json()


def _is_question(row: dict[str, Any]) -> bool:
    question = row.get("question")
    return isinstance(question, str) and bool(question.strip())
