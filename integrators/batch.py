"""Many questions from a file to a file: one JSON object a line, or CSV; a failed question costs its own line only.

Line i of the output belongs to line i of the input. Every line is on disk before the next question is asked, so a run
that was cut off, even in the middle of a line, goes on where it stopped.
"""

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from kcard.answer import Answer
from kcard.errors import KcardError, LLMError, UsageError
from kcard.files import write_text
from kcard.json_values import parse

__all__ = ["Totals", "answer_file", "earlier_lines", "read_questions"]

Row = dict[str, Any]

BATCH = 16
GIVE_UP = 16  # so many failures in a row are the endpoint's, not the questions'
RESULT = {field.name for field in fields(Answer)} - {"question"} | {"error"}
NO_QUESTION = {"error": "the key 'question' must hold a non-empty text"}


class Told(Protocol):
    """What a question came to, such as an Answer."""

    def to_json(self) -> Row: ...


Answers = Callable[[Sequence[str]], Iterable[Told]]


@dataclass(frozen=True)
class Totals:
    """What a run cost. Tokens are None where they are not known of every answer."""

    answered: int = 0
    failed: int = 0
    calls: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0

    def with_line(self, line: Row) -> "Totals":
        used = line.get("usage", {})
        failed = "error" in line
        return Totals(
            self.answered + (not failed),
            self.failed + failed,
            self.calls + line.get("calls", 0),
            self.tokens_in if failed else _sum(self.tokens_in, used.get("tokens_in")),
            self.tokens_out if failed else _sum(self.tokens_out, used.get("tokens_out")),
        )


def read_questions(path: Path) -> list[Row]:
    """Every line of a JSONL file, or every row of a .csv; UsageError names the first line that is not a JSON object,
    and a table without a column of questions."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"--input {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--input {path} can't be read: {error}") from error
    if path.suffix.lower() == ".csv":
        rows = _table(path, text)
    else:
        lines = text.split("\n")
        rows = [_object(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise UsageError(f"--input {path} contains no questions")
    return rows


def _table(path: Path, text: str) -> list[Row]:
    """The rows of a table whose header names a column question."""
    try:
        table = csv.DictReader(text.splitlines(keepends=True), strict=True)
        rows = [{key: value for key, value in row.items() if key is not None} for row in table]
    except csv.Error as error:
        raise UsageError(f"--input {path} can't be read as CSV: {error}") from error
    if "question" not in (table.fieldnames or ()):
        found = ", ".join(table.fieldnames or ()) or "none"
        raise UsageError(f"--input {path} has no column 'question'; its columns are {found}")
    return rows


def earlier_lines(rows: Sequence[Row], output: Path, resume: bool) -> list[Row]:
    """What an earlier run left in `output`; a half-written last line is taken away.

    Raises UsageError where there is something and it is not to be resumed, or where it does not belong to `rows`.
    """
    content = output.read_bytes() if output.exists() else b""
    if not content:
        return []
    if not resume:
        raise UsageError(
            f"--output {output} already exists: add --resume to continue it, or choose another file"
        )
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(output, len(whole))
    texts = whole.decode("utf-8", errors="replace").split("\n")[:-1]
    lines = [_object(output, number, text) for number, text in enumerate(texts, 1)]
    for number, line in enumerate(lines, 1):
        if number > len(rows) or not _belongs(line, rows[number - 1]):
            raise UsageError(
                f"{output}:{number} does not match the input, which has changed: choose another --output"
            )
    return lines


def answer_file(
    rows: Sequence[Row],
    output: Path,
    answers: Answers,
    report: Callable[[int], None] | None = None,
    earlier: Sequence[Row] = (),
) -> Totals:
    """Write each row, its keys passed through in order, with its answer or an `error`.

    `answers`: Pipeline.answers, or what is like it. `earlier`: what earlier_lines found; of these only rows with an
    `error` are asked again. Raises LLMError, with everything so far on disk, after GIVE_UP failures in a row.
    """
    lines, totals = list(earlier), Totals()
    failed = [i for i, line in enumerate(lines) if "error" in line]
    streak, done = 0, len(lines) - len(failed)
    for i, result in _results(rows, [*failed, *range(len(lines), len(rows))], answers):
        line = {**{key: value for key, value in rows[i].items() if key != "error"}, **result}
        if i < len(lines):
            lines[i] = line
            _replace(output, lines)
        else:
            _append(output, line)
        totals, done = totals.with_line(line), done + 1
        if report:
            report(done)
        streak = streak + 1 if "error" in result and result != NO_QUESTION else 0
        if streak == GIVE_UP:
            raise LLMError(
                f"{streak} questions failed in a row, the last one: {result['error']} "
                f"(the answers so far are in {output}; continue with --resume)"
            )
    return totals


def _results(rows: Sequence[Row], wanted: Sequence[int], answers: Answers) -> Iterator[tuple[int, Row]]:
    """(row number, answer or error) of each wanted row, in order; so many rows at a time that cards write together."""
    for start in range(0, len(wanted), BATCH):
        chunk = wanted[start : start + BATCH]
        yield from zip(chunk, _answered([rows[i] for i in chunk], answers), strict=True)


def _answered(rows: Sequence[Row], answers: Answers) -> Iterator[Row]:
    """After a failure the rest is asked one by one, so that one bad question does not cost the others."""
    found: Iterator[Told] | None = None
    for n, row in enumerate(rows):
        if not _is_question(row):
            yield NO_QUESTION
            continue
        try:
            if found is None:
                found = iter(answers([r["question"] for r in rows[n:] if _is_question(r)]))
            result = next(found).to_json()
        except KcardError as error:
            if len(rows) == 1:
                yield {"error": str(error)}
                return
            for other in rows[n:]:
                yield from _answered([other], answers)
            return
        yield result


def _append(path: Path, line: Row) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(_text(line))
        stream.flush()
        os.fsync(stream.fileno())


def _replace(path: Path, lines: Sequence[Row]) -> None:
    """Write the file anew so that there is always the old one or the new one."""
    write_text(path, "".join(map(_text, lines)))


def _text(line: Row) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"


def _object(path: Path, number: int, text: str) -> Row:
    try:
        row = parse(text)
    except ValueError as error:
        raise UsageError(f"{path}:{number} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise UsageError(f"{path}:{number} must be an object with the key 'question'")
    return row


def _belongs(line: Row, row: Row) -> bool:
    """Whether an output line is this row's: what the answer did not write over is still the same."""
    return all(line.get(key) == value for key, value in row.items() if key not in RESULT)


def _is_question(row: Row) -> bool:
    question = row.get("question")
    return isinstance(question, str) and bool(question.strip())


def _sum(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more
