"""Numbers and years in texts: what small encoders hardly tell apart, the 4th from the 5th, 2020 from 2022."""

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["ORDINALS", "Agreement", "agreement", "numbers", "ordinals_as_in"]

NUMBER = re.compile(r"\d[\d.,]*(?:st|nd|rd|th)?")
YEAR = re.compile(r"[12]\d{3}")
ORDINALS = {
    "first": "1st", "second": "2nd", "third": "3rd", "fourth": "4th", "fifth": "5th", "sixth": "6th", "seventh": "7th",
    "eighth": "8th", "ninth": "9th", "tenth": "10th", "eleventh": "11th", "twelfth": "12th",
}  # fmt: skip
IN_WORDS = {figure: word for word, figure in ORDINALS.items()}
ORDINAL = re.compile(rf"(?<!per )\b(?:\d+(?:st|nd|rd|th)|{'|'.join(ORDINALS)})\b", re.IGNORECASE)
OTHER = 0.5
ABSENT = 0.1


def numbers(text: str) -> set[str]:
    """Numbers and ordinals in figures: {"2022", "5th", "1,200"}."""
    return {found.rstrip(".,") for found in NUMBER.findall(text.lower())}


def agreement(question: str, text: str) -> float:
    """How far the text speaks of the question's numbers, in [0.5, 1]; 1 where the question has none.

    A number that the text lacks while it names another of the same form (another year, another ordinal) takes off
    its share of OTHER; one that it merely does not mention, its share of ABSENT. Chosen by measurement
    (docs/selectors.md).
    """
    asked, stated = numbers(question), numbers(text)
    forms = {_form(number) for number in stated}
    lacking = asked - stated
    other = sum(_form(number) in forms for number in lacking)
    lost = OTHER * other + ABSENT * (len(lacking) - other)
    return 1 - lost / len(asked) if asked else 1.0


def ordinals_as_in(texts: Sequence[str], question: str) -> str:
    """The question with its ordinals written as in the texts: "eighth" becomes "8th" where they have ordinals in
    figures, and "8th" becomes "eighth" where they have that word. An ordinal that they have stays."""
    known = {found.lower() for text in texts for found in ORDINAL.findall(text)}
    in_figures = any(found[0].isdigit() for found in known)

    def written(match: re.Match[str]) -> str:
        asked = match[0].lower()
        if asked in known:
            return match[0]
        if asked in ORDINALS:
            return ORDINALS[asked] if in_figures else match[0]
        return IN_WORDS[asked] if IN_WORDS.get(asked) in known else match[0]

    return ORDINAL.sub(written, question)


class Agreement:
    """`agreement` of many texts with a question at once: which numbers they name is looked up, not read again."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._count = len(texts)
        named: defaultdict[str, list[int]] = defaultdict(list)
        forms: defaultdict[str, list[int]] = defaultdict(list)
        for place, text in enumerate(texts):
            stated = numbers(text)
            for number in stated:
                named[number].append(place)
            for form in {_form(number) for number in stated}:
                forms[form].append(place)
        self._named, self._forms = dict(named), dict(forms)

    def __call__(self, question: str) -> npt.NDArray[np.float64]:
        """Shape (n,), in [0.5, 1]."""
        asked = numbers(question)
        if not asked:
            return np.ones(self._count)
        lacking = np.full(self._count, len(asked))
        other = np.zeros(self._count, dtype=np.int64)
        for number in asked:
            here, alike = self._named.get(number, []), self._forms.get(_form(number), [])
            lacking[here] -= 1
            other[alike] += 1
            other[here] -= 1
        found: npt.NDArray[np.float64] = 1 - (OTHER * other + ABSENT * (lacking - other)) / len(asked)
        return found


def _form(number: str) -> str:
    if YEAR.fullmatch(number):
        return "year"
    return "ordinal" if number[-1].isalpha() else "count"
