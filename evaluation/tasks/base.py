"""Tasks: questions with accepted answers, read from files of data sets."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any, Protocol

from kcard import system
from kcard.errors import UsageError
from kcard.io import Row, opened, parse, read_rows, reading, suffix
from kcard.manifest import file_digest
from kcard.questions import checked, choices_of
from kcard.types import Choice, Question, derive_seed

# Entries of files of questions, in the common layouts.
#
# One JSON object per line (.jsonl); a list of objects, alone or under a key of an object (.json); or a table (.csv,
# .tsv); each also compressed (.gz). In SQuAD's layout (paragraphs with questions) every question is an entry.

LISTS = ("data", "questions", "rows", "testset", "Data")
ROWS = (".jsonl", ".ndjson", ".csv", ".tsv")
TABLES = (".csv", ".tsv")


def read_entries(path: Path, name: str, lists: Sequence[str] = LISTS) -> Iterator[tuple[str, Row]]:
    """Yield each entry of a file of questions with its place in the file; `name` names the file's role in messages.

    Raises UsageError for a file of another kind and for one that can't be read.
    """
    kind = suffix(path)
    if kind == ".json":
        yield from list_entries(parse_file(path, name), f"{name} {path}", lists)
    elif kind in ROWS or path.is_dir():
        for where, row in read_rows(path, name):
            if kind not in TABLES:
                yield from _flat(row, where)
                continue
            filled = {key: value for key, value in row.items() if value}
            yield where, filled
    else:
        raise UsageError(
            f"{name} {path}: unknown kind of file; give .jsonl, .json, .csv or .tsv, or one of them compressed as .gz"
        )


def parse_file(path: Path, name: str) -> Any:
    """Parse a JSON file, compressed or not. Raises UsageError, which names file and line."""
    where = f"{name} {path}"
    with reading(path, name), opened(path) as stream:
        text = stream.read().decode("utf-8-sig")
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}, line {error.lineno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{where}: unreadable JSON: {error}") from error


def list_entries(data: Any, file: str, lists: Sequence[str] = LISTS) -> Iterator[tuple[str, Row]]:
    """Yield the entries of a parsed file with their places: a list, alone or under the first present key of `lists`."""
    if isinstance(data, dict):
        for key in lists:
            if isinstance(data.get(key), list):
                data = data[key]
                break
    if not isinstance(data, list):
        keys = ", ".join(f'"{key}"' for key in lists)
        raise UsageError(f"{file}: expected a list of questions, alone or under one of {keys} of an object")
    for number, entry in enumerate(data, start=1):
        where = f"{file}, entry {number}"
        if not isinstance(entry, dict):
            raise UsageError(f"{where}: expected an object, found {type(entry).__name__}")
        yield from _flat(entry, where)


def _flat(entry: Row, where: str) -> Iterator[tuple[str, Row]]:
    """Yield the entry; for an article or a paragraph, its questions instead, each with title and context."""
    if "question" in entry:
        yield where, entry
    elif "paragraphs" in entry:
        for number, paragraph in enumerate(_objects(entry, "paragraphs", where), start=1):
            around = {"title": entry.get("title"), "context": paragraph.get("context")}
            for count, question in enumerate(_objects(paragraph, "qas", where), start=1):
                yield f"{where}, paragraph {number}, question {count}", around | question
    elif "context" in entry and "questions" in entry:
        around = {"title": entry.get("title"), "context": entry["context"]}
        for count, question in enumerate(_objects(entry, "questions", where), start=1):
            yield f"{where}, question {count}", around | question
    else:
        yield where, entry


def _objects(entry: Row, key: str, where: str) -> list[Row]:
    rows = entry.get(key)
    if isinstance(rows, list) and all(isinstance(item, dict) for item in rows):
        return rows
    raise UsageError(f'{where}: expected "{key}" to be a list of objects, as in SQuAD\'s layout')


# Tasks: questions with accepted answers, on which settings are compared.


@dataclass(frozen=True)
class Item:
    """One question of a task.

    id          unique within the task, and the same each time the file is read
    answers     the accepted answers; for multiple choice, the letter of the right option, followed by the letters of
                options with the same text
    choices     the options (letter, text); empty for an open question
    group       a part of the task, such as a subject (MMLU) or relation (PopQA); "" if the task has no groups
    popularity  of its subject (PopQA's s_pop), at least 0; None if unknown
    passages    texts that the data set provides with the question (SQuAD, HotpotQA)
    label       the class of the right answer, in a classification task (LUN); "" in others
    """

    id: str
    question: str
    answers: tuple[str, ...]
    choices: tuple[Choice, ...] = ()
    group: str = ""
    popularity: float | None = None
    passages: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class TaskData:
    """The questions of a task's file or folder.

    name    the task and its variant, such as "midterm-binary"
    metric  the metric that the task's papers report: em, f1, substring, accuracy or balanced-accuracy
    sha256  of the file's bytes
    shots   demonstrations by group; those under "" are for groups without their own
    """

    name: str
    metric: str
    items: tuple[Item, ...]
    sha256: str
    shots: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)

    def demonstrations(self, item: Item) -> tuple[Item, ...]:
        """Return the demonstrations for a question, without the question itself."""
        shots = self.shots.get(item.group) or self.shots.get("", ())
        others = [shot for shot in shots if shot.question != item.question]
        return tuple(others)


class Task(Protocol):
    """A reader of a data set, registered under `kcard.tasks` by the task's name."""

    def read(self, path: Path) -> TaskData:
        """Return the questions of a file or folder.

        Raises UsageError, which names file, line (or entry) and remedy, if it is missing or malformed, has a duplicate
        id, or contains no question.
        """
        ...


Names = tuple[str, ...]


@dataclass(frozen=True)
class Columns:
    """The column names of each field of an Item; the first one that an entry has is read."""

    question: Names = ("question",)
    answers: Names = ("answers", "answer")
    choices: Names = ("choices",)
    id: Names = ("id",)
    group: Names = ("group",)
    popularity: Names = ("popularity",)
    passages: Names = ("passages",)
    label: Names = ("label",)

    def item(self, row: Row, where: str) -> Item:
        """Return the entry as an Item, with id "" if it has none. Raises UsageError, starting with `where`."""
        question = required_text(row, self.question, where)
        # The options: as in kcard.types, as {"label": [...], "text": [...]}, or as columns A, B, C ...
        options = _parsed(_first(row, self.choices))
        if options is None and "A" in row and "B" in row:
            options = {letter: row[letter] for letter in ascii_uppercase if letter in row}
        if isinstance(options, dict):
            labels, texts = options.get("label"), options.get("text")
            if isinstance(labels, list) and isinstance(texts, list):
                options = dict(zip(map(_text, labels), texts, strict=False))
        try:
            choices = checked(Question("?", choices_of(options))).choices
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        # The accepted answers: one text, a list, SQuAD's {"text": [...]}, or a list as JSON text; for multiple choice,
        # letters.
        answer = _first(row, self.answers)
        if answer is None:
            raise UsageError(
                f'{where}: expected {_quoted(self.answers)}; there is no answer to "{question[:60]}"'
            )
        answers = _texts(answer)
        if choices:
            answers = _right_letters(answer, choices, where)
        elif not answers:
            raise UsageError(
                f'{where}: expected an "answer" or "answers"; there is no answer to "{question[:60]}"'
            )
        # The other fields, all optional.
        group, value = _text(_first(row, self.group)), _first(row, self.popularity)
        popularity = None
        if value is not None:
            try:
                popularity = float(value)
            except (TypeError, ValueError):
                popularity = -1.0
            if not 0 <= popularity < float("inf"):
                raise UsageError(f"{where}: popularity is {value!r}, expected a number of at least 0")
        return Item(
            id=_text(_first(row, self.id)),
            question=question,
            answers=tuple(dict.fromkeys(answers)),
            choices=choices,
            group=group,
            popularity=popularity,
            passages=tuple(_texts(_first(row, self.passages))),
            label=_text(_first(row, self.label)),
        )


def required_text(row: Row, names: Names, where: str) -> str:
    """Return the text in the first of these columns that the entry has. Raises UsageError if there is none."""
    text = _first(row, names)
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{where}: expected {_quoted(names)} with a text")
    return text.strip()


def _right_letters(answer: Any, choices: tuple[Choice, ...], where: str) -> list[str]:
    """Return the letter of the right option, which `answer` gives as letter, number (from 0) or text.

    The letters of options with the same text follow, since they can't be told apart.
    """
    text = _text(answer)
    named = [choice for choice in choices if choice.name.casefold() == text.casefold()]
    described = [choice for choice in choices if choice.description.casefold() == text.casefold()]
    right = None
    if named or described:
        right = (named or described)[0]
    elif text.isascii() and text.isdigit() and len(text) < 3 and int(text) < len(choices):
        right = choices[int(text)]
    if right is None:
        letters = ", ".join(choice.name for choice in choices)
        raise UsageError(
            f"{where}: the answer {text[:60]!r} is not one of the options {letters}: give the letter, the number "
            "(from 0) or the text of one of them"
        )
    same = [choice.name for choice in choices if choice.description == right.description]
    return list(dict.fromkeys([right.name, *same]))


def _first(row: Row, names: Names) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    return None


def _quoted(names: Names) -> str:
    return " or ".join(f'a "{name}"' for name in names)


def _parsed(value: Any) -> Any:
    """Parse a list or object that a table contains as JSON text; return other values unchanged."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            return parse(value)
        except ValueError:
            return value
    return value


def _texts(value: Any) -> list[str]:
    """Return the texts of a value: one text, a list, SQuAD's {"text": [...]}, or a list as JSON text."""
    value = _parsed(value)
    if isinstance(value, dict):
        value = value.get("text")
    if not isinstance(value, list):
        value = [value]
    return list(filter(None, map(_text, value)))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("text")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).strip()


# Demonstrations for data sets without their own, drawn from the questions as in Adaptive Retrieval (appendix B).

MAX_SHOTS = 15
SEED = 0


def draw_shots_of_other_groups(items: Sequence[Item]) -> Mapping[str, tuple[Item, ...]]:
    """Draw, for each group, a question of every other group, at most MAX_SHOTS; empty without groups.

    The questions of a group share their demonstrations; the paper draws them for each question.
    """
    by_group: dict[str, list[Item]] = {}
    for item in items:
        if item.group:
            by_group.setdefault(item.group, []).append(item)
    demonstrations: dict[str, tuple[Item, ...]] = {}
    if len(by_group) < 2:
        return demonstrations
    for group in by_group:
        random = Random(derive_seed(SEED, "shots", group))
        shots = [random.choice(members) for other, members in sorted(by_group.items()) if other != group]
        random.shuffle(shots)
        demonstrations[group] = tuple(shots[:MAX_SHOTS])
    return demonstrations


def draw_shots(items: Sequence[Item]) -> Mapping[str, tuple[Item, ...]]:
    """Draw demonstrations for all groups, at most MAX_SHOTS; TaskData.demonstrations leaves out the question itself."""
    shots = Random(derive_seed(SEED, "shots")).sample(items, min(MAX_SHOTS, len(items)))
    return {"": tuple(shots)}


# Task data from items: ids are unique, and duplicate questions are merged.

PlacedItem = tuple[str, Item]


def from_rows(
    name: str,
    metric: str,
    path: Path,
    columns: Columns,
    shaped: Callable[[Row], Row | None] | None = None,
) -> TaskData:
    """Read a task from a file of entries with these columns. `shaped` prepares an entry, or skips it by None."""

    def items() -> Iterable[PlacedItem]:
        for where, row in read_entries(path, name):
            entry: Row | None = row
            if shaped is not None:
                entry = shaped(row)
            if entry is not None:
                yield where, columns.item(entry, where)

    return collect_items(name, metric, path, items())


def collect_items(
    name: str,
    metric: str,
    path: Path,
    items: Iterable[PlacedItem],
    shots: Mapping[str, tuple[Item, ...]] | None = None,
) -> TaskData:
    """Collect the items of a task, given with their places.

    The id of an item without one is its number in the file. Duplicate open questions without ids are merged, with the
    answers of all. Raises UsageError for a duplicate id, for duplicate multiple-choice questions with different
    answers, and for no item.
    """
    by_id: dict[str, Item] = {}
    places: dict[str, str] = {}
    ids: dict[tuple[object, ...], str] = {}
    for number, (where, item) in enumerate(items, start=1):
        # Merge a duplicate question.
        key = (item.question, item.group, item.choices, item.passages)
        if not item.id and key in ids:
            first = by_id[ids[key]]
            if first.choices and first.answers != item.answers:
                raise UsageError(
                    f"{where}: the question has the answer {item.answers[0]}, but {first.answers[0]} at "
                    f"{places[ids[key]]}: keep one of them"
                )
            by_id[ids[key]] = replace(first, answers=tuple(dict.fromkeys([*first.answers, *item.answers])))
            continue
        # Any other needs an id of its own.
        placed = replace(item, id=item.id or str(number))
        if placed.id in by_id:
            raise UsageError(
                f"{where}: the id {placed.id!r} is used at {places[placed.id]} too: give every question its own id"
            )
        by_id[placed.id], places[placed.id] = placed, where
        if not item.id:
            ids[key] = placed.id
    if not by_id:
        raise UsageError(f"{name} {path}: no question in it: give a file with at least one")
    # The sha256 of the file; for a folder, of its files' digests and names.
    if path.is_dir():
        hasher = hashlib.sha256()
        for file in sorted(path.rglob("*")):
            if file.is_file():
                hasher.update(f"{file_digest(file)} {file.relative_to(path).as_posix()}\n".encode())
        digest = hasher.hexdigest()
    else:
        digest = file_digest(path)
    return TaskData(name, metric, tuple(by_id.values()), digest, shots or {})


# Tasks by name, built-in ones and plugins (entry points of the group `kcard.tasks`).

GROUP = "kcard.tasks"


def task_names() -> list[str]:
    """Return the names of all tasks, sorted."""
    return system.names(GROUP)


def read_task(name: str, path: Path | str) -> TaskData:
    """Read the questions of the task `name` from a file or folder in the data set's layout.

    Raises UsageError for an unknown name, and what Task.read raises.
    """
    task: Task = system.load(GROUP, name)
    return task.read(Path(path).expanduser())


def recognise_task(path: Path) -> str:
    """Return the task that a file declares ("dataset": "MidtermQA-binary"); jsonl if it declares none.

    The files of Knowledge Card's repository declare it, and JSON files of {name, split, rows}. Raises UsageError for an
    unreadable JSON file.
    """
    if suffix(path) != ".json":
        return "jsonl"
    data = parse_file(path, "questions")
    if not isinstance(data, dict):
        return "jsonl"
    label = data.get("dataset")
    if not label and "split" in data:
        label = data.get("name")
    names = [name for name in task_names() if str(label or "").casefold().startswith(name)]
    return max(names, key=len, default="jsonl")
