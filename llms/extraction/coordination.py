"""Coordinated parts of a sentence, which give a value for each of several things: "4 guests in summer and 2 in winter".

The reader knows that the sentence answers, but takes any of its values; so does a small LLM. The part with the words of
the question decides. Of offices ("Who is the treasurer?") the parts are those of all sentences.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kcard.embedded.question_forms import FUNCTION_WORDS, MONTH, NUMERALS, Form
from kcard.llms.extraction.clauses import stems_of_word, telling_stems
from kcard.llms.extraction.times import NOW, Period, asked_period, overlap, period_of, weekdays
from kcard.llms.extraction.verdicts import PREPOSITIONS
from kcard.text import sentence_spans

MAX_CHARACTERS = 2000  # of a text, beyond which its parts are not looked for
MAX_PARTS = 6  # of a sentence

# Values: amounts, times and names.

_NUMERALS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|eighteen|twenty"
    "|thirty|forty|fifty|sixty|ninety|hundred"
)
_CLOCK = r"\s?(?:[ap]m\b|[ap]\.m\.|o['’]clock)"
_NUMBER = (
    rf"(?:\d{{1,2}}(?:st|nd|rd|th)? {MONTH}(?: \d{{4}})?|{MONTH} \d{{1,2}}(?:, \d{{4}})?|[€$£]?\d+(?:[.,:]\d+)*"
    rf"(?:{_CLOCK}|\s?[%°€$£])?|\b(?i:{_NUMERALS})(?= [a-z]|-))"
)
NUMBER = re.compile(
    rf"(?<![\w.#/:-])(?:between {_NUMBER} and {_NUMBER}|{_NUMBER}(?:\s?(?:to|until|till|or|-|–)\s?{_NUMBER})?)"
    r"(?![\w/:-])"
)
UNIT = re.compile(r"[ -]?([a-zµ°%]+(?:/[a-z]+)?)\b")
TIME = re.compile(
    rf"\b[12]\d{{3}}\b|\d:\d\d|{_CLOCK}|{MONTH}|\b(?:to|until|till)\b|[-–]"
    r"|\b(?:second|minute|hour|day|week|month|year)s?\b"
)
YEAR = re.compile(r"\b(?:in|since|until|till|before|after|from|by|to|of|and|during) [12]\d{3}$")
NAME = re.compile(
    r"(?<![\w'’-])(?:(?:Dr|Mr|Mrs|Ms|Prof)\.? )?[^\W\d_a-z][\w'’-]+(?: (?:[^\W\d_a-z]\.|(?:van|von|de|der|den|di|da|of)"
    r"(?= [^\W\d_a-z])|&(?= [^\W\d_a-z])|[^\W\d_a-z][\w'’-]*))*"
)
LOWER_CASE = re.compile(r"\b[a-z]\w*")
CAPITALISED = re.compile(r"\b[^\W\d_a-z]\w+")
NO_NAME = re.compile(
    rf"{MONTH}$|(?:mon|tues|wednes|thurs|fri|satur|sun)days?$|(?:he|she|they|we|you|no|yes|both|mr|mrs|dr)$",
    re.IGNORECASE,
)

IN_FIGURES = {word: str(number) for number, word in enumerate(NUMERALS, start=1)}

# What divides parts; strong marks go before others.

COORDINATOR = re.compile(
    r"[;.]\s+|\n+|,?\s+(?:while|whereas|but)\s+|,\s+and\s+|\s+(?:and|or)\s+(?!since\W*$)|,\s+", re.IGNORECASE
)
STRONG = re.compile(r"[;.]|\n|while|whereas|but|,\s+and", re.IGNORECASE)
BEHIND_SUBJECT = re.compile(r" (?:is|was|has|and)\b")
LONG = re.compile(r"\blong\b", re.IGNORECASE)
COPULA = re.compile(r"(?:\b(?:is|are|was|were|be|by|costs?|takes?|needs?|to|at)|:)\W*$", re.IGNORECASE)
SINCE = re.compile(r"\b(?:since|now|today|currently|afterwards)\b", re.IGNORECASE)
OFFICE = re.compile(
    r"\b(?:[Ww]ho(?: is| was| are|['’]s| works as| serves as| served as| acts as)|[Ww]hat(?: is|['’]s) the name of)"
    r"(?: currently| now)? (?:(?:the|our|your|its|their|acting) ([\w -]+?)|([a-z][a-z -]*?))"
    r"(?: (?:of|in|at|for|since|until|before|after|now|then|today|currently|on)\b|[^\w -]|$)"
)


@dataclass(frozen=True)
class Value:
    """A value in a text: an amount with its unit, a time or a name; `start` and `end` in characters."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class CoordinatedPart:
    """A part of a sentence with its value.

    keys    the stems of what it speaks of, which its siblings lack
    days    the days of the week that it names
    period  the years that it speaks of, if any
    """

    start: int
    end: int
    value: Value
    keys: frozenset[str]
    days: frozenset[int]
    period: Period | None


def asked_part(
    question: str, form: Form, text: str, *, by_number: bool
) -> tuple[CoordinatedPart, list[CoordinatedPart]] | None:
    """Return the coordinated part that speaks of what the question names, and its siblings; None if there is no such
    part, or if it is in doubt.

    by_number  whether the question asks for a number or time, rather than a name
    """
    if len(text) > MAX_CHARACTERS:
        return None
    answers = []
    for span in sentence_spans(text):
        parts = parts_of(question, text, [span], by_number=by_number, with_years=form == "when")
        chosen = _chosen(question, form, parts, by_number=by_number)
        if chosen is not None:
            answers.append((chosen, [part for part in parts if part is not chosen]))
    if len(answers) == 1:
        return answers[0]
    office = OFFICE.search(question)
    if answers or by_number or office is None:
        return None
    return _holder(question, office[1] or office[2], text)


def claims_part(question: str, form: Form, statement: str, text: str) -> bool | None:
    """Return whether a statement gives the value that a text has for what it speaks of (or the question, if the
    statement does not say): False if it gives the value of a coordinated sibling, None if the text has no such parts.
    """
    for by_number in (True, False):
        values = _names(question, statement, 0, len(statement))
        if by_number:
            values = _numbers(statement, 0, len(statement), with_years=form == "when")
        subject = statement
        for value in reversed(values):
            subject = f"{subject[: value.start]} {subject[value.end :]}"
        answer = None
        if values:
            answer = asked_part(subject, form, text, by_number=by_number)
            answer = answer or asked_part(f"{question} {subject}", form, text, by_number=by_number)
        if answer is None:
            continue
        own = {_plain(value) for value in values}
        part, siblings = answer
        if form != "who" and not by_number and " " not in part.value.text:
            continue  # a technical name, not a person's
        if _plain(part.value) in own:
            return True
        if own & {_plain(sibling.value) for sibling in siblings}:
            return False
    return None


def _plain(value: Value) -> str:
    """Return a value's number, in figures, or name, without its unit."""
    plain = value.text[: value.end - value.start].lower()
    return " ".join(IN_FIGURES.get(word, word) for word in plain.split())


def is_office_question(question: str) -> bool:
    return bool(OFFICE.search(question))


def parts_of(
    question: str, text: str, spans: Sequence[tuple[int, int]], *, by_number: bool, with_years: bool
) -> list[CoordinatedPart]:
    """Return the coordinated parts of sentences, each with one value; none of a sentence in which the borders between
    them are in doubt."""
    places: list[tuple[int, int, list[Value]]] = []
    for start, end in spans:
        values = _names(question, text, start, end)
        if by_number:
            values = _numbers(text, start, end, with_years=with_years)
        places += _divide(text, start, end, values)
    if len(places) < 2:
        return []
    # What stands before and behind each value.
    before, behind = [], []
    for first, last, values in places:
        before.append(_stems(text[first : values[0].start]))
        behind.append(_stems(text[values[-1].end : last]))
    common = frozenset.intersection(*behind)
    # What stands before the first value: "The fee is 5 coins, and 9 coins for guests."
    holds_for_all = not any(before[1:]) and any(behind[1:])
    parts = []
    previous: Period | None = None
    for at, (first, last, values) in enumerate(places):
        keys = before[at] | behind[at]
        if at == 0 and (behind[0] - common or holds_for_all):
            keys = behind[0]
        others = set[str]()
        for other in range(len(places)):
            if other != at:
                others |= before[other] | behind[other]
        previous = _period(text[first:last], previous)
        if len(values) == 1:
            days = weekdays(text[first:last])
            parts.append(CoordinatedPart(first, last, values[0], keys - others, days, previous))
    return parts


def timely_clause(question: str, form: Form, text: str) -> tuple[int, int] | None:
    """Return the start and end of the only clause of the time that the question asks about, in the sentence of which
    others are of another time: "until 2012 by the Lunds, and since then by the town"; None if there is none."""
    time = asked_period(question)
    if time is None or form == "when" or len(text) > MAX_CHARACTERS:
        return None
    clauses = []
    for start, end in sentence_spans(text):
        begin = start
        periods: list[tuple[int, int, Period]] = []
        for mark in [*COORDINATOR.finditer(text, start, end), None]:
            stop = mark.end() if mark else end
            period = _period(text[begin:stop], periods[-1][2] if periods else None)
            if period is not None:
                periods.append((begin, stop, period))
            begin = stop
        timely = [place for place in periods if overlap(place[2], time)]
        if len(timely) == 1 and len(periods) > 1:
            clauses.append(timely[0])
    if len(clauses) != 1:
        return None
    return clauses[0][0], clauses[0][1]


def _stems(text: str) -> frozenset[str]:
    """Return the stems of a text's content words, also of "long"."""
    if LONG.search(text):
        return telling_stems(text) | {"long"}
    return telling_stems(text)


def _divide(text: str, start: int, end: int, values: Sequence[Value]) -> list[tuple[int, int, list[Value]]]:
    """Return the start, end and values of each part of a sentence."""
    if not values:
        return []
    is_led = bool(_stems(text[start : values[0].start]))
    is_followed = bool(_stems(text[values[-1].end : end]))
    places = []
    first, own = start, [values[0]]
    for value, following in pairwise(values):
        border = _border(text, value.end, following.start, is_led=is_led, is_followed=is_followed)
        if border is not None:
            places.append((first, border, own))
            first, own = border, []
        own.append(following)
    return [*places, (first, end, own)]


def _border(text: str, start: int, end: int, *, is_led: bool, is_followed: bool) -> int | None:
    """Return where a new part begins between two values; None if they belong to one part."""
    marks = list(COORDINATOR.finditer(text, start, end))
    if not marks:
        return None
    strong = [mark for mark in marks if STRONG.search(mark[0])]
    begins_with_mark = marks[0].start() == start
    # "its chair, Ines Roth, its treasurer, Paul Vey": what a value is for stands before it.
    is_before = not is_followed and is_led
    if is_led and is_followed:
        is_before = begins_with_mark and bool(COPULA.search(text[start:end]))
    if strong and len(strong) < len(marks):
        marks = strong
    if is_before:
        return marks[0].end()
    return marks[-1].end()


def _numbers(text: str, start: int, end: int, *, with_years: bool) -> list[Value]:
    values = []
    for match in NUMBER.finditer(text, start, end):
        if not with_years and YEAR.search(text[start : match.end()]):
            continue
        stop = match.end()
        unit = UNIT.match(text, stop, end)
        if unit and unit[1] not in FUNCTION_WORDS and unit[1] not in PREPOSITIONS and unit[1] != "while":
            stop = unit.end()
        elif match[0].lower() == "one":
            continue  # "the right one"
        if with_years and not TIME.search(text[match.start() : stop]):
            continue
        values.append(Value(text[match.start() : stop], match.start(), match.end()))
    return values


def _names(question: str, text: str, start: int, end: int) -> list[Value]:
    """Return the names, without words of the question at their beginning: "Treasurer Paul Vey"."""
    lower_case_stems = telling_stems(" ".join(LOWER_CASE.findall(question)))
    values = []
    for match in NAME.finditer(text, start, end):
        if text[match.end() : match.end() + 1] == ":":
            continue
        begin, name = match.start(), match[0]
        while name:
            first = name.split()[0]
            is_plain = (
                first.lower() in FUNCTION_WORDS or first.lower() in PREPOSITIONS or NO_NAME.match(first)
            )
            if not is_plain and not (stems_of_word(first) & lower_case_stems):
                break
            begin += len(first) + 1
            name = name[len(first) + 1 :]
        if name:
            values.append(Value(name, begin, match.end()))
    # A lone word that opens a sentence is a name only where another word does not have to be.
    openings = {first for first, _ in sentence_spans(text)}
    is_lone = len(values) > 1 and values[0].start in openings and " " not in values[0].text
    if is_lone and not BEHIND_SUBJECT.match(text[values[0].end :]):
        return values[1:]
    return values


def _period(text: str, previous: Period | None) -> Period | None:
    period = period_of(text)
    if period is None and previous is not None and SINCE.search(text):
        return min(previous[1], NOW - 1), math.inf
    return period


def _chosen(
    question: str, form: Form, parts: Sequence[CoordinatedPart], *, by_number: bool
) -> CoordinatedPart | None:
    """Return the only part that speaks of what the question names: of its time, day, or with its words."""
    if len(parts) < 2:
        return None
    question_stems, days, time = _stems(question), weekdays(question), asked_period(question)
    dated = [part for part in parts if part.period is not None]
    if form != "when" and len(dated) > 1:
        fitting = [part for part in dated if time and part.period and overlap(part.period, time)]
    elif form != "when" and time not in (None, (NOW, NOW)):
        return None
    elif any(part.days for part in parts):
        fitting = [part for part in parts if days and days <= part.days]
    else:
        fitting = [part for part in parts if part.keys & question_stems]
        if by_number and not fitting and not parts[0].keys:
            fitting = [parts[0]]  # the others are exceptions
        is_in_doubt = len(fitting) > 1 or fitting == [parts[0]] or not by_number
        if is_in_doubt:
            fitting = [part for part in fitting if part.keys <= question_stems]
    if len(fitting) != 1 or len(parts) > MAX_PARTS:
        return None
    value = fitting[0].value.text
    if telling_stems(value) <= question_stems or set(CAPITALISED.findall(value)) & set(
        CAPITALISED.findall(question)
    ):
        return None
    return fitting[0]


def _holder(question: str, office: str, text: str) -> tuple[CoordinatedPart, list[CoordinatedPart]] | None:
    """Return the part with the holder of an office."""
    parts = parts_of(question, text, sentence_spans(text), by_number=False, with_years=False)
    time = asked_period(question)
    for stems in (telling_stems(question), telling_stems(office)):
        holders = [part for part in parts if stems and stems <= telling_stems(text[part.start : part.end])]
        if time is not None:
            holders = [part for part in holders if overlap(part.period or (NOW, NOW), time)]
        if len(holders) == 1:
            return holders[0], [part for part in parts if part is not holders[0]]
    return None
