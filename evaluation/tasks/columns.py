"""An entry of a data set as an Item: which columns hold what, under the names that the data set gives them."""

from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from kcard.choices import choices_of
from kcard.errors import UsageError
from kcard.evaluation.tasks.task import Item
from kcard.json_values import parse
from kcard.question import Question, checked
from kcard.request import Choice
from kcard.rows import Row

__all__ = ["Columns", "accepted", "required_text"]

Names = tuple[str, ...]


@dataclass(frozen=True)
class Columns:
    """For each part of an Item the names that its column may have; the first that an entry has is read."""

    question: Names = ("question",)
    answers: Names = ("answers", "answer")
    choices: Names = ("choices",)
    id: Names = ("id",)
    group: Names = ("group",)
    popularity: Names = ("popularity",)
    passages: Names = ("passages",)
    label: Names = ("label",)

    def item(self, row: Row, where: str) -> Item:
        """The entry as an Item, whose id is "" where it has none. Raises UsageError, which begins with `where`."""
        question = required_text(row, self.question, where)
        choices = _choices(row, self.choices, where)
        answer = _first(row, self.answers)
        if answer is None:
            raise UsageError(
                f'{where}: expected {_named(self.answers)}; there is no answer to "{question[:60]}"'
            )
        return Item(
            id=_text(_first(row, self.id)),
            question=question,
            answers=_right(answer, choices, where) if choices else accepted(answer, question, where),
            choices=choices,
            group=_text(_first(row, self.group)),
            popularity=_popularity(_first(row, self.popularity), where),
            passages=tuple(text for text in map(_text, _as_list(_first(row, self.passages))) if text),
            label=_text(_first(row, self.label)),
        )


def required_text(row: Row, names: Names, where: str) -> str:
    """The text in the first of these columns. Raises UsageError where there is none."""
    found = _first(row, names)
    if not isinstance(found, str) or not found.strip():
        raise UsageError(f"{where}: expected {_named(names)}, which must be a text")
    return found.strip()


def accepted(given: Any, question: str, where: str) -> tuple[str, ...]:
    """Answers as data sets write them, each once: one, a list, SQuAD's {"text": [...]}, or a list within a text."""
    found = dict.fromkeys(text for text in map(_text, _as_list(given)) if text)
    if not found:
        raise UsageError(
            f'{where}: expected an "answer" or "answers"; there is no answer to "{question[:60]}"'
        )
    return tuple(found)


def _right(answer: Any, choices: tuple[Choice, ...], where: str) -> tuple[str, ...]:
    """The letter of the right option, given by its letter, its number (from 0) or its text.

    The letters of options that read the same follow it, since nobody can tell them apart.
    """
    given = _text(answer)
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 3 else len(choices)
    right = (
        next((choice for choice in choices if choice.name.casefold() == given.casefold()), None)
        or next((choice for choice in choices if choice.description.casefold() == given.casefold()), None)
        or (choices[number] if number < len(choices) else None)
    )
    if right is None:
        raise UsageError(
            f"{where}: the answer {given[:60]!r} is none of the options {', '.join(c.name for c in choices)}: "
            "give the letter, the number (from 0) or the text of one of them"
        )
    same = (choice.name for choice in choices if choice.description == right.description)
    return tuple(dict.fromkeys([right.name, *same]))


def _choices(row: Row, names: Names, where: str) -> tuple[Choice, ...]:
    """The options, as kcard.choices reads them; {"label": [...], "text": [...]}; or columns A, B, C ..."""
    given = _parsed(_first(row, names))
    if given is None and "A" in row and "B" in row:
        given = {letter: row[letter] for letter in ascii_uppercase if letter in row}
    if (
        isinstance(given, dict)
        and isinstance(given.get("text"), list)
        and isinstance(given.get("label"), list)
    ):
        given = dict(zip(map(_text, given["label"]), given["text"], strict=False))
    try:
        return checked(Question("?", choices_of(given))).choices
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _first(row: Row, names: Names) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _named(names: Names) -> str:
    return " or ".join(f'a "{name}"' for name in names)


def _parsed(given: Any) -> Any:
    """A list or an object that stands in a table as JSON text; else what was given."""
    if isinstance(given, str) and given.lstrip().startswith(("[", "{")):
        try:
            return parse(given)
        except ValueError:
            return given
    return given


def _as_list(given: Any) -> list[Any]:
    given = _parsed(given)
    if isinstance(given, dict):
        given = given.get("text")
    return given if isinstance(given, list) else [given]


def _text(given: Any) -> str:
    if isinstance(given, dict):
        given = given.get("text")
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return ""
    return str(given).strip()


def _popularity(given: Any, where: str) -> float | None:
    if given is None:
        return None
    try:
        found = float(given)
    except (TypeError, ValueError):
        found = -1.0
    if not 0 <= found < float("inf"):
        raise UsageError(f"{where}: popularity is {given!r}, expected a number of at least 0")
    return found
