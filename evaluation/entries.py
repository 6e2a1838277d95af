"""The entries of a data set's file, in the layouts in which questions are handed on.

One JSON object a line (.jsonl); a list of them, alone or under a key of an object (.json); or a table (.csv, .tsv);
each also compressed (.gz). Paragraphs with their questions, as SQuAD has them, give an entry a question.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.json_values import parse
from kcard.rows import Row, opened, read_rows, reading, suffix

__all__ = ["LISTS", "entries", "listed", "parsed_file"]

LISTS = ("data", "questions", "rows", "testset", "Data")
ROWS = (".jsonl", ".ndjson", ".csv", ".tsv")
TABLES = (".csv", ".tsv")


def entries(path: Path, name: str, lists: Sequence[str] = LISTS) -> Iterator[tuple[str, Row]]:
    """Each entry of a file of questions, which messages call `name`, and where it stands.

    Raises UsageError for a file of another kind and for what can't be read.
    """
    kind = suffix(path)
    if kind == ".json":
        yield from listed(parsed_file(path, name), f"{name} {path}", lists)
    elif kind in ROWS or path.is_dir():
        for where, row in read_rows(path, name):
            if kind in TABLES:
                yield where, {key: value for key, value in row.items() if value}
            else:
                yield from _flat(row, where)
    else:
        raise UsageError(
            f"{name} {path}: files of this kind are not read; give .jsonl, .json, .csv or .tsv, or one of them as .gz"
        )


def parsed_file(path: Path, name: str) -> Any:
    """The value in a JSON file, compressed or not. Raises UsageError, which names file and line."""
    where = f"{name} {path}"
    with reading(path, name), opened(path) as stream:
        text = stream.read().decode("utf-8-sig")
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}, line {error.lineno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{where}: not JSON that can be read: {error}") from error


def listed(data: Any, file: str, lists: Sequence[str] = LISTS) -> Iterator[tuple[str, Row]]:
    """The entries of a parsed file, and where each stands: a list, alone or under the first of the keys `lists`."""
    if isinstance(data, dict):
        data = next((data[key] for key in lists if isinstance(data.get(key), list)), data)
    if not isinstance(data, list):
        keys = ", ".join(f'"{key}"' for key in lists)
        raise UsageError(f"{file}: expected a list of questions, alone or under one of {keys} of an object")
    for number, entry in enumerate(data, start=1):
        where = f"{file}, entry {number}"
        if not isinstance(entry, dict):
            raise UsageError(f"{where}: expected an object, found {type(entry).__name__}")
        yield from _flat(entry, where)


def _flat(entry: Row, where: str) -> Iterator[tuple[str, Row]]:
    """The entry itself; of an article or a paragraph its questions, each with the title and context it belongs to."""
    if "question" in entry:
        yield where, entry
    elif "paragraphs" in entry:
        for number, paragraph in enumerate(_objects(entry, "paragraphs", where), start=1):
            around = {"title": entry.get("title"), "context": paragraph.get("context")}
            for count, asked in enumerate(_objects(paragraph, "qas", where), start=1):
                yield f"{where}, paragraph {number}, question {count}", around | asked
    elif "context" in entry and "questions" in entry:
        around = {"title": entry.get("title"), "context": entry["context"]}
        for count, asked in enumerate(_objects(entry, "questions", where), start=1):
            yield f"{where}, question {count}", around | asked
    else:
        yield where, entry


def _objects(entry: Row, key: str, where: str) -> list[Row]:
    found = entry.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UsageError(f'{where}: expected "{key}" to be a list of objects, as in SQuAD\'s layout')
    return found
