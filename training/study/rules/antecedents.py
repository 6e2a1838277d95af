"""Sentences that stand alone: a pronoun at the beginning gives way to the name that it stands for."""

import re
from collections.abc import Sequence

from kcard.training.spans import bare, entities
from kcard.training.study.rules.answers import Names
from kcard.training.study.rules.word_classes import NO_SUBJECT

__all__ = ["standing_alone"]

PRONOUN = re.compile(r"(?:(?:However|Later|Also|Then), )?(He|She|It|They|His|Her|Its|Their) ")
PERSONAL = ("He", "She", "His", "Her")
POSSESSIVE = ("His", "Its", "Their")
LONGEST = 5  # words of a name


def standing_alone(sentences: Sequence[str], title: str, names: Names) -> list[str]:
    """Each sentence of a passage, with the name that was last the subject for a pronoun that begins it, or else the
    title. It stays as it is where no name fits."""
    found, subject = [], title
    for sentence in sentences:
        pronoun = PRONOUN.match(sentence)
        if pronoun and subject and _fits(pronoun[1], subject, names):
            found.append(
                f"{_named(pronoun[1], subject, sentence[pronoun.end() :])}{sentence[pronoun.end() :]}"
            )
        else:
            found.append(sentence)
            subject = _subject(sentence) or ("" if not pronoun else subject)
    return found


def _subject(sentence: str) -> str:
    """The name that a sentence begins with, with its article; "" where it begins with another word."""
    article = "The " if sentence.startswith("The ") else ""
    text = sentence.removeprefix("The ")
    first = next(iter(entities(text)), None)
    if first is None or first[0] != 0 or len(text[: first[1]].split()) > LONGEST or text[0].isdigit():
        return ""
    name = text[: first[1]]
    if text[first[1] :].startswith(("'s", "’s", ",")) or text.split()[0].lower() in NO_SUBJECT:
        return ""
    return article + name


def _fits(pronoun: str, subject: str, names: Names) -> bool:
    name = subject.removeprefix("The ")
    if pronoun in PERSONAL:
        return names.is_person(subject) or (subject == name and " " not in name and name not in names.others)
    plural = bare(name.split()[-1]).endswith("s") and subject != name
    return plural if pronoun in ("They", "Their") else not plural and not names.is_person(name)


def _named(pronoun: str, subject: str, following: str) -> str:
    owns = pronoun in POSSESSIVE or (pronoun == "Her" and bool(following))
    return f"{subject}{('’' if subject.endswith('s') else '’s') if owns else ''} "
