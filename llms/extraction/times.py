"""Times in questions and passages: days of the week, and years that a sentence speaks of."""

import math
import re

from kcard.text import sentence_spans

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAYS_SHORT = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = "(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?s?"
DAY = re.compile(rf"\b(?:{'|'.join(WEEKDAYS)})s?\b", re.IGNORECASE)
RANGE = re.compile(rf"\b({_DAY})\.?\s*(?:to|until|till|through|-|–)\s*({_DAY})\b", re.IGNORECASE)
PARTS_OF_WEEK = {"weekday": {0, 1, 2, 3, 4}, "weekend": {5, 6}}
PART_OF_WEEK = re.compile(r"\b(weekday|weekend)s?\b", re.IGNORECASE)
DAY_WORDS = re.compile(rf"{RANGE.pattern}|{DAY.pattern}|{PART_OF_WEEK.pattern}", re.IGNORECASE)


def day_number(name: str) -> int:
    """Return the number of a day of the week, 0 for Monday, by its first three letters."""
    return WEEKDAYS_SHORT.index(name[:3].lower())


def weekdays(text: str) -> frozenset[int]:
    """Return the days of the week that a text names, 0 for Monday: also those of "Monday to Friday", of "weekdays" and
    of "weekends"."""
    days = {day_number(match[0]) for match in DAY.finditer(text)}
    for match in RANGE.finditer(text):
        first, last = day_number(match[1]), day_number(match[2])
        days.add(last)
        while first != last:
            days.add(first)
            first = (first + 1) % 7
    for match in PART_OF_WEEK.finditer(text):
        days |= PARTS_OF_WEEK[match[1].lower()]
    return frozenset(days)


# Years. A period is (first, last year), either of them infinite; PRESENT_YEAR stands for the present.

PRESENT_YEAR = 9999.0
_YEAR = r"([12]\d{3})\b"
PERIODS = (
    re.compile(
        rf"\b(?:from|between)?\s*{_YEAR}\s*(?:to|until|till|and|through|-|–)\s*{_YEAR}", re.IGNORECASE
    ),
    re.compile(rf"\bbefore(?: \w+)? {_YEAR}", re.IGNORECASE),
    re.compile(rf"\b(?:until|till|up to)(?: \w+)? {_YEAR}", re.IGNORECASE),
    re.compile(rf"\bafter(?: \w+)? {_YEAR}", re.IGNORECASE),
    re.compile(rf"\b(?:since|from|as of|starting(?: in)?)(?: \w+)? {_YEAR}", re.IGNORECASE),
    re.compile(rf"\b(?:in|during)(?: \w+)? {_YEAR}", re.IGNORECASE),
)
FORMER = re.compile(r"\b(?:used to|formerly|previously|in the past|former|originally)\b", re.IGNORECASE)
PRESENT = re.compile(
    r"\b(?:now|nowadays|today|currently|at present|these days|at the moment|any more)\b", re.IGNORECASE
)
IN_PRESENT = re.compile(r"\b(?:is|are|am|do|does|has|have|can|may|must|who \w+(?<!wa)s)\b", re.IGNORECASE)

Period = tuple[float, float]


def period_of(text: str) -> Period | None:
    """Return the years that a text speaks of, as its first "before 2019", "from 2003 to 2008" or "formerly" has it;
    None for a text without such words."""
    between, before, until, after, since, within = (pattern.search(text) for pattern in PERIODS)
    if between:
        return float(between[1]), float(between[2])
    if before:
        return -math.inf, float(before[1]) - 1
    if until:
        return -math.inf, float(until[1])
    if after:
        return float(after[1]) + 1, math.inf
    if since:
        return float(since[1]), math.inf
    if within:
        return float(within[1]), float(within[1])
    if FORMER.search(text):
        return -math.inf, PRESENT_YEAR - 1
    return None


def asked_period(question: str) -> Period | None:
    """Return the years that a question asks about: PRESENT_YEAR if it has none and is in the present tense; None if it
    has neither."""
    period = period_of(question)
    if period is None and PRESENT.search(question):
        return PRESENT_YEAR, PRESENT_YEAR
    if period is None and IN_PRESENT.search(question) and not re.search(_YEAR, question):
        return PRESENT_YEAR, PRESENT_YEAR
    return period


def overlap(one: Period, other: Period) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def includes_year(text: str, year: str) -> bool:
    """Return whether a sentence of the text speaks of a period that includes the year without naming it."""
    if not re.fullmatch(_YEAR, year):
        return False
    for start, end in sentence_spans(text):
        period = period_of(text[start:end])
        if period is not None and period[0] <= float(year) <= period[1]:
            return True
    return False
