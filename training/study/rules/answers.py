"""What a name, date or number is, so that a question can ask for it: "which year", "which person", "how many games"."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kcard.training.spans import entities
from kcard.training.study.rules.word_classes import TYPES

__all__ = ["Names", "is_date", "spans"]

MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(
    rf"\b(?:(?:\d{{1,2}} )?(?:{MONTHS})(?: \d{{1,2}})?(?:,? \d{{4}})?|1\d{{3}}s?|20\d{{2}}s?)\b(?![-–]\d)"
)
PERSON = re.compile(
    r"[A-Z][a-zà-ÿ'’-]+(?: [A-Z]\.| (?:de|van|von|der|da|al))*(?: [A-Z][\w'’-]*[a-zà-ÿ][\w'’-]*){1,2}"
)
SENTENCE = re.compile(r"\S.*?(?:(?<=\w\w)[.!?](?=\s)|$)", re.DOTALL)
# What stands before names that are not persons', and after or before persons' names.
PLACED = re.compile(r"(?:^|[ (])(?:[Ii]n|[Aa]t|[Nn]ear|[Tt]hroughout|[Tt]he)$")
ACTING = re.compile(
    r",? who\b| (?:said|wrote|was born|died|believed|argued|thought|told|married|graduated|studied)\b"
)
TITLED = re.compile(
    r"\b(?:[a-z]+(?:er|or|ist|ian|ect|back|man)|king|queen|Dr\.?|Mrs?\.?|Sir|Saint|St\.?|President|Pope|Professor)$"
)


@dataclass(frozen=True)
class Names:
    """What a corpus tells of its names: which are persons', and which stand for something else."""

    persons: frozenset[str] = field(default_factory=frozenset)
    others: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Names":
        persons, others = set[str](), set[str]()
        for text in texts:
            for start, end in _names(text):
                name, before, after = text[start:end], text[:start].rstrip()[-30:], text[end : end + 160]
                if name.startswith("The "):
                    others.add(name.removeprefix("The "))
                elif PLACED.search(before) or not text[start:end].replace(" ", "").isascii():
                    others.add(name)
                elif ACTING.match(after) or TITLED.search(before) or _resumed(text, start, after):
                    persons.add(name)
        return cls(frozenset(persons - others), frozenset(others))

    def noun(self, name: str) -> str:
        """What to ask for: "game" for "Championship Game", "person", "thing" for other names, "" where it is not
        sure."""
        last = name.rpartition(" ")[2].lower()
        if " " in name and last in TYPES:
            return last
        if self.is_person(name):
            return "person"
        return "thing" if name in self.others else ""

    def told(self, texts: Iterable[str]) -> str:
        """What is known of the names in these texts, as what is written about them depends on it."""
        found = sorted({text[start:end] for text in texts for start, end in entities(text)})
        return "\n".join(f"{name}: {self.noun(name)}" for name in found)

    def may_be_place(self, name: str) -> bool:
        """Whether nothing in it says that it is a date, a number or an event."""
        return not any(word[0].isdigit() or word.lower() in TYPES for word in name.split())

    def is_person(self, name: str) -> bool:
        typed = any(word.lower() in TYPES for word in name.split())
        return (
            bool(PERSON.fullmatch(name))
            and not typed
            and not name.startswith("The ")
            and name in self.persons
        )


def _names(text: str) -> Iterator[tuple[int, int]]:
    """Those of each sentence: a full stop does not join names."""
    for sentence in SENTENCE.finditer(text):
        for start, end in entities(sentence[0]):
            yield sentence.start() + start, sentence.start() + end


def _resumed(text: str, start: int, after: str) -> bool:
    """Whether a name begins its sentence and the next one begins with "he" or "she"."""
    begins = start == 0 or text[:start].rstrip().endswith(".")
    return begins and bool(re.match(r"[^.]*\. (?:He|She|His|Her)\b", after))


def is_date(span: str) -> bool:
    return bool(DATE.fullmatch(span))


def spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each date, name and number, dates whole."""
    dates = [found.span() for found in DATE.finditer(text)]
    names = [span for span in entities(text) if not any(a < span[1] and span[0] < b for a, b in dates)]
    return sorted(dates + names)
