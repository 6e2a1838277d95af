"""Questions as users write them, checked before anything is asked, and steps of which some questions may fail."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from string import ascii_uppercase
from typing import Any, TypeVar

from kcard.errors import KcardError, QuestionsFailed, UsageError
from kcard.io import parse
from kcard.types import Choice, Question

T = TypeVar("T")
MAX_QUESTION_CHARACTERS = 20_000  # with its options; the page to ask takes no more either


def checked(question: str | Question) -> Question:
    """Return the question; a plain text is converted.

    Raises UsageError unless the text can be encoded in UTF-8, has with the options at most MAX_QUESTION_CHARACTERS, and
    there are no options or at least two, each with a text and a letter of its own.
    """
    if isinstance(question, str):
        question = Question(question)
    if not question.text.strip():
        raise UsageError("the question is empty")
    try:
        question.text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the question {question.text[:60]!a} is not UTF-8 text: encode it as UTF-8"
        ) from None
    choices = question.choices
    length = len(question.text)
    for choice in choices:
        length += len(choice.name) + len(choice.description)
    if length > MAX_QUESTION_CHARACTERS:
        raise UsageError(
            f"the question has {length:,} characters: shorten it to {MAX_QUESTION_CHARACTERS:,} or fewer, or train a "
            "card on the text that it is about"
        )
    if len(choices) == 1:
        raise UsageError(f"there is only one option, {choices[0].name!r}: give at least two, or none")
    for choice in choices:
        if not choice.name.strip() or not choice.description.strip():
            raise UsageError(f"option {choice.name!r} is {choice.description!r}: give it a letter and a text")
    letters = Counter(choice.name.casefold() for choice in choices)
    for choice in choices:
        if letters[choice.name.casefold()] > 1:
            raise UsageError(
                f"{letters[choice.name.casefold()]} options have the letter {choice.name!r}: give each its own"
            )
    return question


def all_checked(questions: Sequence[str | Question]) -> list[Question]:
    """Return the questions, each checked. Raises UsageError, too, for one text, which is no list of questions."""
    if isinstance(questions, str | Question):
        raise UsageError("a pipeline takes a list of questions: pass [question]")
    return [checked(question) for question in questions]


# Options of a multiple-choice question in the forms that people use: a list, letter -> text, or one line of text.

REMEDY = 'write "Rome; Paris" or "A=Rome; B=Paris", a list of texts, or an object of letters and texts'
LETTER_AND_TEXT = re.compile(r"\s*([A-Z]|\d{1,2})\s*=\s*(\S.*)", re.DOTALL)


def choices_of(given: Any) -> tuple[Choice, ...]:
    """Parse options: texts get the letters A, B, C ... unless each has its own; in an object the letters are the keys.

    In a text, options are separated by semicolons; it may also be a list or an object in JSON, as in a cell of a
    table. None, "" and an empty list give no options. Raises UsageError for anything else.
    """
    if isinstance(given, str):
        text, given = given, [part for part in given.split(";") if part.strip()]
        if text.lstrip()[:1] in {"[", "{"}:
            with suppress(ValueError):  # a text that only begins like JSON
                given = parse(text)
    if isinstance(given, Mapping):
        return tuple(Choice(str(letter).strip(), _text(text)) for letter, text in given.items())
    if given is None:
        return ()
    if not isinstance(given, Sequence):
        raise UsageError(f"choices are {given!r}: {REMEDY}")
    # Use the letters in the texts if all have one, else those of the alphabet.
    texts, lettered = [], []
    for text in map(_text, given):
        texts.append(text)
        match = LETTER_AND_TEXT.fullmatch(text)
        if match:
            lettered.append(Choice(match[1], match[2].strip()))
    if len(lettered) == len(texts):
        return tuple(lettered)
    if len(texts) > len(ascii_uppercase):
        raise UsageError(
            f"there are {len(texts)} choices without letters: give at most {len(ascii_uppercase)}"
        )
    return tuple(Choice(letter, text) for letter, text in zip(ascii_uppercase, texts, strict=False))


def _text(choice: Any) -> str:
    if isinstance(choice, bool) or not isinstance(choice, str | int | float):
        raise UsageError(f"the choice {choice!r} is not a text: {REMEDY}")
    return str(choice).strip()


# A step for many questions, of which some may fail.


def run_step(
    step: Callable[[list[Question]], Sequence[T]], questions: Sequence[Question]
) -> tuple[dict[Question, T], dict[Question, KcardError]]:
    """Run a step and return its result for each question, or the error of each question that failed.

    step  returns one result per question, in order. If it raises QuestionsFailed, it is run again without the questions
          that this names; if it raises another error, for each half of the questions, so that one bad question does
          not fail the others. The LLM is not asked again for what it replied (Question.trace)
    """
    results: dict[Question, T] = {}
    failures: dict[Question, KcardError] = {}

    parts = [list(questions)]
    while parts:
        part = parts.pop()
        try:
            results.update(zip(part, step(part) if part else (), strict=True))
        except KcardError as error:
            named = error.failures if isinstance(error, QuestionsFailed) else {}
            failures.update((question, named[question]) for question in part if question in named)
            rest = [question for question in part if question not in named]
            if len(part) == 1:
                failures.setdefault(part[0], error)
            elif len(rest) < len(part):
                parts.append(rest)
            else:
                parts += [rest[len(rest) // 2 :], rest[: len(rest) // 2]]
    return results, failures
