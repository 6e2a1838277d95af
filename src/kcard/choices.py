"""Options of a multiple-choice question as people write them: a list, letter -> text, or one line of text."""

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from kcard.errors import UsageError
from kcard.json_values import parse
from kcard.request import Choice

__all__ = ["EXPECTED", "choices_of"]

EXPECTED = 'write "Rome; Paris" or "A=Rome; B=Paris", a list of texts, or an object of letters and texts'
LETTERED = re.compile(r"\s*([A-Z]|\d{1,2})\s*=\s*(\S.*)", re.DOTALL)


def choices_of(given: Any) -> tuple[Choice, ...]:
    """The options: texts get the letters A, B, C ... unless each brings its own ("A=Rome"); an object has them as keys.

    In one line of text, semicolons part the options; it may also hold a list or an object as JSON, as a cell of a
    table does. Nothing (None, "", an empty list) gives none. Raises UsageError for anything else.
    """
    if isinstance(given, str):
        given = _read(given)
    if isinstance(given, Mapping):
        return tuple(Choice(*_texts(str(letter), text)) for letter, text in given.items())
    if isinstance(given, Sequence):
        return _lettered([_texts("", text)[1] for text in given])
    if given is None:
        return ()
    raise UsageError(f"choices are {given!r}: {EXPECTED}")


def _read(text: str) -> Any:
    if text.lstrip()[:1] in {"[", "{"}:
        try:
            return parse(text)
        except ValueError:
            pass  # a text that only begins like JSON
    return [part for part in text.split(";") if part.strip()]


def _texts(letter: str, text: Any) -> tuple[str, str]:
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise UsageError(f"a choice is {text!r}, not a text: {EXPECTED}")
    return letter.strip(), str(text).strip()


def _lettered(texts: Sequence[str]) -> tuple[Choice, ...]:
    """Each with the letter that it brings, or, unless all bring one, with the next of the alphabet."""
    found = [LETTERED.fullmatch(text) for text in texts]
    if texts and all(found):
        return tuple(Choice(match[1], match[2].strip()) for match in found if match)
    if len(texts) > len(ascii_uppercase):
        raise UsageError(
            f"there are {len(texts)} choices without letters: give at most {len(ascii_uppercase)}"
        )
    return tuple(Choice(letter, text) for letter, text in zip(ascii_uppercase, texts, strict=False))
