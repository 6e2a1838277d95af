"""What a question asks about its subject: the relation whose questions are nearest, once names are masked.

Names say nothing of the relation and would decide the cosine; with a placeholder in their stead, the forms of two
questions of one relation are nearly equal.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kcard.errors import UsageError
from kcard.gates.representation import Representation, finite, unit
from kcard.json_values import parse
from kcard.protocols import Array

__all__ = ["Relations", "masked", "templates"]

SLOT = "it"
BUILT_IN = Path(__file__).resolve().with_name("popqa_relations.json")
TAIL = re.compile(r"""(['’]s)?[)\]"'”’]*([?.!,;:]*)$""")


@dataclass(frozen=True, eq=False)
class Relations:
    """A prototype for each relation: `vectors` of unit length, shape (r, d)."""

    names: tuple[str, ...]
    vectors: Array

    @classmethod
    def of(cls, questions: Iterable[tuple[str, str]], representation: Representation) -> "Relations":
        """From (relation, question) pairs: the mean vector of each relation's masked questions."""
        by_relation: defaultdict[str, set[str]] = defaultdict(set)
        for relation, question in questions:
            by_relation[relation].add(masked(question))
        names = sorted(by_relation)
        means = [finite(representation, sorted(by_relation[name])).mean(axis=0) for name in names]
        return cls(tuple(names), unit(np.stack(means)))

    def nearest(
        self, questions: Sequence[str], representation: Representation, floor: float
    ) -> list[str | None]:
        """For each question the nearest relation, by cosine; None where it is not as near as `floor`."""
        if not questions:
            return []
        found = unit(finite(representation, [masked(question) for question in questions])) @ self.vectors.T
        return [
            self.names[i] if row[i] >= floor else None for i, row in zip(found.argmax(1), found, strict=True)
        ]


def templates(path: str) -> list[tuple[str, str]]:
    """(relation, question) pairs of a JSON object that maps relations to questions with {} for the subject.

    "popqa": the sixteen relations of PopQA. Raises UsageError for a file that is no such object.
    """
    file = BUILT_IN if path == "popqa" else Path(path).expanduser()
    try:
        given = parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"relation templates {path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"relation templates {path}: not JSON in UTF-8: {error}") from error
    if not isinstance(given, dict) or not given:
        raise UsageError(f"relation templates {path}: an object from relations to questions was expected")
    for relation, question in given.items():
        if not isinstance(question, str) or "{}" not in question:
            raise UsageError(
                f"relation templates {path}: {relation!r} is {json.dumps(question)[:60]}, expected a question with "
                "{} for its subject"
            )
    return [(relation, question.replace("{}", SLOT)) for relation, question in given.items()]


def masked(question: str) -> str:
    """The question with one placeholder for every run of words that begin with anything but a small letter.

    The first word is left as it is, since questions begin with a capital.
    """
    words = question.split()
    found = words[:1]
    inside = False
    for word in words[1:]:
        name = word[0].isupper() or not word[0].isalpha()
        ending = TAIL.search(word)
        placed = f"{SLOT}{ending[1] or ''}{ending[2]}" if name and ending else word
        if name and inside:
            found[-1] = placed
        else:
            found.append(placed)
        inside = name
    return " ".join(found)
