"""Which option of a multiple-choice question a reply names: by its letter, or by its text.

A letter counts only where it can't be a word: "A man" and "I think" name nothing. A reply that names no option, or
several, is None: whoever asked treats it as no choice and keeps the reply.
"""

import re
from collections.abc import Iterable, Sequence

from kcard.request import Choice
from kcard.words import words

__all__ = ["named_option"]

MARKUP = re.compile(r"\*|\\boxed|\\text")
STATED = r"\b(?:answer|option|choice)\b(?:\s+(?:is|would be|should be|must be))?"
WORDS = {"A", "I"}  # letters that are words too
AFTER = {"because", "since", "as", "and", "which", "for"}  # what may follow such a letter that is none


def named_option(reply: str, choices: Sequence[Choice]) -> str | None:
    """The letter of the option that a reply names, for "B", "(b)", "B. Ann", "The answer is B" and "Ann" alike."""
    text = MARKUP.sub("", reply).strip()
    finders = (_alone, _exact, _leading, _stated, _bracketed, _mentioned, _part)
    return next((letter for find in finders if (letter := find(text, choices))), None)


def _alone(text: str, choices: Sequence[Choice]) -> str | None:
    """The letter and nothing else: "B", "b)", "(B)."."""
    said = text.strip(" \t\n()[]{}.,:;'\"").casefold()
    return _only(c.name for c in choices if c.name.casefold() == said)


def _exact(text: str, choices: Sequence[Choice]) -> str | None:
    """The whole text of an option; where two differ in signs alone ("5", "-5"), the signs decide."""
    same = [c.name for c in choices if c.description.strip().casefold() == text.casefold()]
    said = words(text)
    return _only(same) or _only(c.name for c in choices if said and words(c.description) == said)


def _leading(text: str, choices: Sequence[Choice]) -> str | None:
    """The letter at the start: "B. Ann", "(B) Ann", "B: Ann", "B - Ann", and "B Ann" where Ann is option B."""
    for choice in choices:
        letter, told = re.escape(choice.name), words(choice.description)
        sign = rf"(?:[({{[]\s*{letter}\s*[)}}\]]|{letter}\s*(?:[.):\n]|[-–—]\s))(?!\s*(?:or|and)\b)"
        if re.match(sign, text, re.IGNORECASE):
            return choice.name
        rest = re.match(rf"{letter}\s+(.+)", text, re.DOTALL)
        if rest and told and words(rest[1])[: len(told)] == told:
            return choice.name
    return None


def _stated(text: str, choices: Sequence[Choice]) -> str | None:
    """The last one of "answer is B", "Answer: (B)", "option B"; in capitals, since "a" is a word."""
    letters = "|".join(re.escape(choice.name) for choice in choices)
    pattern = rf"(?i:{STATED})\s*:?\s*[({{[]?({letters})(?![\w'’])(?:\s+([a-z]+))?"
    found = [
        letter
        for letter, after in re.findall(pattern, text)
        if not after or letter not in WORDS or after in AFTER
    ]
    return found[-1] if found else None


def _bracketed(text: str, choices: Sequence[Choice]) -> str | None:
    """The one letter in brackets."""
    return _only(c.name for c in choices if re.search(rf"[({{]\s*{re.escape(c.name)}\s*[)}}]", text))


def _mentioned(text: str, choices: Sequence[Choice]) -> str | None:
    """The one option whose text stands in the reply, and not only within another's."""
    said = _spaced(text)
    there = {c.name: _spaced(c.description) for c in choices if words(c.description)}
    there = {name: told for name, told in there.items() if told in said}
    inner = {
        name
        for name, told in there.items()
        for other in there.values()
        if told != other and told in other and told not in said.replace(other, " ")
    }
    return _only(name for name in there if name not in inner)


def _part(text: str, choices: Sequence[Choice]) -> str | None:
    """The one option that the whole reply is a part of: "Wyden" for "Ron Wyden"."""
    if not any(len(word) > 1 or word.isdigit() for word in words(text)):
        return None
    return _only(c.name for c in choices if _spaced(text) in _spaced(c.description))


def _spaced(text: str) -> str:
    return f" {' '.join(words(text))} "


def _only(names: Iterable[str]) -> str | None:
    found = list(names)
    return found[0] if len(found) == 1 else None
