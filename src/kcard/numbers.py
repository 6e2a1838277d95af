"""Numbers and years in texts: what small encoders hardly tell apart, the 4th from the 5th, 2020 from 2022."""

import re

__all__ = ["agreement", "numbers"]

NUMBER = re.compile(r"\d[\d.,]*(?:st|nd|rd|th)?")
YEAR = re.compile(r"[12]\d{3}")
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
    asked, told = numbers(question), numbers(text)
    forms = {_form(number) for number in told}
    lacking = asked - told
    other = sum(_form(number) in forms for number in lacking)
    lost = OTHER * other + ABSENT * (len(lacking) - other)
    return 1 - lost / len(asked) if asked else 1.0


def _form(number: str) -> str:
    if YEAR.fullmatch(number):
        return "year"
    return "ordinal" if number[-1].isalpha() else "count"
