"""A question with what belongs to it alone: the options to choose from, and demonstrations."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kcard.errors import UsageError
from kcard.request import Choice, Example

__all__ = ["Question", "checked", "distinct_texts"]


@dataclass(frozen=True)
class Question:
    """What a pipeline or a baseline answers; a bare text is a question without options and demonstrations.

    choices   the options (letter, text) of a multiple-choice question, whose answer is one of the letters; empty for
              an open question
    examples  demonstrations for this question, the nearest one last, in place of the built-in ones; of those that do
              not fit into the LLM's window the first are dropped first
    """

    text: str
    choices: tuple[Choice, ...] = ()
    examples: tuple[Example, ...] = ()


def checked(question: str | Question) -> Question:
    """The question, a bare text as one.

    Raises UsageError unless its text is one that UTF-8 can hold, and its options are none, or several with a letter
    and a text each, no letter twice.
    """
    asked = Question(question) if isinstance(question, str) else question
    if not asked.text.strip():
        raise UsageError("the question is empty")
    try:
        asked.text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the question {asked.text[:60]!a} is not UTF-8 text: encode it as UTF-8") from None
    _check_choices(asked.choices)
    return asked


def _check_choices(choices: tuple[Choice, ...]) -> None:
    if len(choices) == 1:
        raise UsageError(
            f"there is one option, {choices[0].name!r}, to choose from: give two or more, or none"
        )
    for choice in choices:
        if not choice.name.strip() or not choice.description.strip():
            raise UsageError(f"option {choice.name!r} is {choice.description!r}: give it a letter and a text")
    letters = Counter(choice.name.casefold() for choice in choices)
    for choice in choices:
        if letters[choice.name.casefold()] > 1:
            raise UsageError(
                f"{letters[choice.name.casefold()]} options have the letter {choice.name!r}: give each its own"
            )


def distinct_texts(questions: Iterable[Question]) -> Iterator[list[Question]]:
    """The questions in their order, in groups within which no two have the same text."""
    group: dict[str, Question] = {}
    for question in questions:
        if question.text in group:
            yield list(group.values())
            group = {}
        group[question.text] = question
    if group:
        yield list(group.values())
