"""Exam files: questions that somebody wrote, with their accepted answers.

    {"question": "Which sea does the Rhine reach?", "answer": "North Sea"}
    {"question": "Who discovered Triton?", "answers": ["William Lassell", "Lassell"]}

One such object a line (.jsonl); a list of them, alone or as "data" or "questions" of an object, or SQuAD's layout
(.json); or a table with these columns (.csv). Answers may be a list, a text, or a list written as JSON text.
"""

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.questions import Question
from kcard.json_values import parse

__all__ = ["QuestionFile", "entries", "read_questions", "read_text"]

EXPECTED = 'expected a "question" and an "answer" or "answers"'
LISTS = ("data", "questions")


@dataclass(frozen=True)
class QuestionFile:
    """The questions of one file, each once, and the sha256 of its bytes."""

    name: str
    sha256: str
    questions: tuple[Question, ...]


def read_questions(path: Path | str) -> QuestionFile:
    """Read an exam file. Of a question that stands there twice, the answers of both are accepted.

    Raises UsageError, naming file and line (or entry), for what is missing, no UTF-8 text, of another kind or
    malformed, and for a file without a question.
    """
    path = Path(path).expanduser()
    text, sha256 = read_text(path)
    found: dict[str, dict[str, None]] = {}
    for where, entry in entries(text, path):
        question, answers = _question(entry, f"questions {path}, {where}")
        found.setdefault(question, {}).update(dict.fromkeys(answers))
    if not found:
        raise UsageError(f"questions {path}: no question in it; {EXPECTED}")
    questions = tuple(Question(question, tuple(answers)) for question, answers in found.items())
    return QuestionFile(path.name, sha256, questions)


def read_text(path: Path) -> tuple[str, str]:
    """The text of a file of questions and the sha256 of its bytes; UsageError where it can't be read as UTF-8."""
    try:
        data = path.read_bytes()
        return data.decode("utf-8-sig"), hashlib.sha256(data).hexdigest()
    except OSError as error:
        raise UsageError(
            f"questions {path} can't be read: {error.strerror}: name a .jsonl, .json or .csv"
        ) from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(
            f"questions {path}, line {line}: not UTF-8 text: give a .jsonl, .json or .csv"
        ) from error


def entries(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Each entry of a file of questions and where it stands. Raises UsageError for another kind of file."""
    kind = path.suffix.lower()
    if kind == ".csv":
        return _rows(text, path)
    if kind in (".jsonl", ".ndjson"):
        return _lines(text, path)
    if kind == ".json":
        return _document(text, path)
    raise UsageError(f"questions {path}: files of this kind are not read; give .jsonl, .json or .csv")


def _lines(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    # JSON strings may hold line separators that str.splitlines would cut at.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"line {number}", _parsed(line, path, number)


def _document(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    data = _parsed(text, path, 1)
    if isinstance(data, dict):
        data = next((data[key] for key in LISTS if isinstance(data.get(key), list)), data)
    if not isinstance(data, list):
        raise UsageError(
            f'questions {path}: expected a list of questions, alone or as "data" or "questions" of an object'
        )
    for number, entry in enumerate(data, start=1):
        if isinstance(entry, dict) and "paragraphs" in entry:
            yield from _squad(entry, f"entry {number}", path)
        else:
            yield f"entry {number}", entry


def _squad(article: dict[str, Any], where: str, path: Path) -> Iterator[tuple[str, Any]]:
    """SQuAD: articles of paragraphs, each with its questions under "qas"."""
    try:
        for number, paragraph in enumerate(article["paragraphs"], start=1):
            for count, entry in enumerate(paragraph["qas"], start=1):
                yield f"{where}, paragraph {number}, question {count}", entry
    except (TypeError, KeyError) as error:
        raise UsageError(
            f'questions {path}, {where}: expected "paragraphs" with "qas", as SQuAD has'
        ) from error


def _rows(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    try:
        table = csv.DictReader(text.splitlines(keepends=True), strict=True)
        for row in table:
            yield f"line {table.line_num}", {key: value for key, value in row.items() if value}
    except csv.Error as error:
        raise UsageError(f"questions {path}, line {table.line_num + 1}: not CSV: {error}") from error


def _parsed(text: str, path: Path, first: int) -> Any:
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        line = first + error.lineno - 1
        raise UsageError(f"questions {path}, line {line}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"questions {path}, line {first}: not JSON that can be read: {error}") from error


def _question(entry: Any, where: str) -> tuple[str, list[str]]:
    if not isinstance(entry, dict):
        raise UsageError(f"{where}: {EXPECTED}, found {type(entry).__name__}")
    question = entry.get("question")
    if not isinstance(question, str) or not question.strip():
        raise UsageError(f'{where}: {EXPECTED}; "question" must be a text')
    given = entry.get("answers", entry.get("answer"))
    answers = [text for text in map(_text, _listed(given)) if text]
    if not answers:
        raise UsageError(f'{where}: {EXPECTED}; there is no answer to "{question.strip()[:60]}"')
    return question.strip(), answers


def _listed(given: Any) -> list[Any]:
    """Answers as people write them: one, a list, SQuAD's {"text": [...]}, or a list within a text."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = parse(given)
        except ValueError:
            return [given]
    if isinstance(given, dict):
        given = given.get("text")
    return given if isinstance(given, list) else [given]


def _text(answer: Any) -> str:
    if isinstance(answer, dict):
        answer = answer.get("text")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        return ""
    return str(answer).strip()
