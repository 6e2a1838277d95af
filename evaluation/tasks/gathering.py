"""Items gathered into a task's data: ids are unique, a question that stands there twice counts once."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from kcard.errors import UsageError
from kcard.evaluation.entries import entries
from kcard.evaluation.tasks.columns import Columns
from kcard.evaluation.tasks.task import Item, TaskData
from kcard.manifest import file_digest
from kcard.rows import Row

__all__ = ["from_rows", "gathered"]

Placed = tuple[str, Item]


def from_rows(
    name: str,
    metric: str,
    path: Path,
    columns: Columns,
    shaped: Callable[[Row], Row | None] | None = None,
) -> TaskData:
    """A task that is one file of entries with these columns. `shaped`: the entry made ready; None leaves it out."""

    def items() -> Iterable[Placed]:
        for where, row in entries(path, name):
            found = row if shaped is None else shaped(row)
            if found is not None:
                yield where, columns.item(found, where)

    return gathered(name, metric, path, items())


def gathered(
    name: str,
    metric: str,
    path: Path,
    items: Iterable[Placed],
    shots: Mapping[str, tuple[Item, ...]] | None = None,
) -> TaskData:
    """The data of a task, whose items come with where they stand.

    An item without an id takes its number in the file. Of an open question without an id that stands there twice, the
    answers of both are accepted. Raises UsageError for a duplicate id, for a multiple-choice question that has another
    answer elsewhere, and where there is no item.
    """
    found: dict[str, Item] = {}
    places: dict[str, str] = {}
    ids: dict[tuple[object, ...], str] = {}
    for number, (where, item) in enumerate(items, start=1):
        key = (item.question, item.group, item.choices, item.passages)
        if not item.id and key in ids:
            found[ids[key]] = _merged(found[ids[key]], item, where, places[ids[key]])
            continue
        placed = replace(item, id=item.id or str(number))
        if placed.id in found:
            raise UsageError(
                f"{where}: the id {placed.id!r} is taken by {places[placed.id]}: give every question an id of its own"
            )
        found[placed.id], places[placed.id] = placed, where
        if not item.id:
            ids[key] = placed.id
    if not found:
        raise UsageError(f"{name} {path}: no question in it: give a file with at least one")
    return TaskData(name, metric, tuple(found.values()), _digest(path), shots or {})


def _merged(first: Item, second: Item, where: str, place: str) -> Item:
    if first.choices and first.answers != second.answers:
        raise UsageError(
            f"{where}: the question stands at {place} with the answer {first.answers[0]}, here with "
            f"{second.answers[0]}: keep one of them"
        )
    return replace(first, answers=tuple(dict.fromkeys([*first.answers, *second.answers])))


def _digest(path: Path) -> str:
    """sha256 of the file; of a folder, that of its files' names and digests."""
    if not path.is_dir():
        return file_digest(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = (f"{file_digest(file)} {file.relative_to(path).as_posix()}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
