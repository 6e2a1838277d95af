"""Exam files: questions that somebody wrote, with their accepted answers.

    {"question": "Which sea does the Rhine reach?", "answer": "North Sea"}
    {"question": "Who discovered Triton?", "answers": ["William Lassell", "Lassell"]}

One such object a line (.jsonl); a list of them, alone or as "data" or "questions" of an object, or SQuAD's layout
(.json); or a table with these columns (.csv). Answers may be a list, a text, or a list written as JSON text.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.questions import Question
from kcard.json_values import parse
from kcard.manifest import file_digest
from kcard.rows import Row, read_rows, reading

__all__ = ["QuestionFile", "entries", "read_questions"]

EXPECTED = 'expected a "question" and an "answer" or "answers"'
LISTS = ("data", "questions")
ROWS = (".jsonl", ".ndjson", ".csv")


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
    found: dict[str, dict[str, None]] = {}
    for where, entry in entries(path, "questions"):
        question, answers = _question(entry, where)
        found.setdefault(question, {}).update(dict.fromkeys(answers))
    if not found:
        raise UsageError(f"questions {path}: no question in it; {EXPECTED}")
    questions = tuple(Question(question, tuple(answers)) for question, answers in found.items())
    return QuestionFile(path.name, file_digest(path), questions)


def entries(path: Path, name: str) -> Iterator[tuple[str, Row]]:
    """Each entry of a file of questions, which messages call `name`, and where it stands.

    Raises UsageError for a file of another kind and for what can't be read.
    """
    kind = path.suffix.lower()
    if kind == ".json":
        with reading(path, name):
            data = _parsed(path.read_text(encoding="utf-8-sig"), f"{name} {path}")
        for where, entry in _document(data, f"{name} {path}"):
            if not isinstance(entry, dict):
                raise UsageError(f"{where}: expected an object, found {type(entry).__name__}")
            yield where, entry
    elif kind in ROWS or path.is_dir():
        for where, row in read_rows(path, name):
            yield where, {key: value for key, value in row.items() if value or kind != ".csv"}
    else:
        raise UsageError(f"{name} {path}: files of this kind are not read; give .jsonl, .json or .csv")


def _parsed(text: str, where: str) -> Any:
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}, line {error.lineno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{where}: not JSON that can be read: {error}") from error


def _document(data: Any, file: str) -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict):
        data = next((data[key] for key in LISTS if isinstance(data.get(key), list)), data)
    if not isinstance(data, list):
        raise UsageError(
            f'{file}: expected a list of questions, alone or as "data" or "questions" of an object'
        )
    for number, entry in enumerate(data, start=1):
        if isinstance(entry, dict) and "paragraphs" in entry:
            yield from _squad(entry, f"{file}, entry {number}")
        else:
            yield f"{file}, entry {number}", entry


def _squad(article: Row, where: str) -> Iterator[tuple[str, Any]]:
    """SQuAD: articles of paragraphs, each with its questions under "qas"."""
    try:
        for number, paragraph in enumerate(article["paragraphs"], start=1):
            for count, entry in enumerate(paragraph["qas"], start=1):
                yield f"{where}, paragraph {number}, question {count}", entry
    except (TypeError, KeyError) as error:
        raise UsageError(f'{where}: expected "paragraphs" with "qas", as SQuAD has') from error


def _question(entry: Row, where: str) -> tuple[str, list[str]]:
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
