"""Coordinated parts of a sentence, which give a value for each of several things: "4 guests in summer and 2 in winter".

The reader finds the sentence that answers, but may take the wrong one of its values, and so may a small LLM. The value
of the part with the question's words is the answer. For an office ("Who is the treasurer?"), the parts of all sentences
are compared.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kcard.embedded.question_forms import FUNCTION_WORDS, MONTH, NUMERALS, Form
from kcard.llms.extraction.clauses import stems_of_word, telling_stems
from kcard.llms.extraction.times import PRESENT_YEAR, Period, asked_period, overlap, period_of, weekdays
from kcard.llms.extraction.verdicts import PREPOSITIONS
from kcard.text import sentence_spans

MAX_CHARACTERS = 2000  # of a text; a longer one is not divided
MAX_PARTS = 6  # of a sentence

# Amounts, times and names.

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
CAPITALISED_WORD = re.compile(r"\b[^\W\d_a-z]\w+")
NO_NAME = re.compile(
    rf"{MONTH}$|(?:mon|tues|wednes|thurs|fri|satur|sun)days?$|(?:he|she|they|we|you|no|yes|both|mr|mrs|dr)$",
    re.IGNORECASE,
)

PLAIN_WORDS = FUNCTION_WORDS | PREPOSITIONS
NO_UNITS = PLAIN_WORDS | {"while"}
IN_FIGURES = {word: str(number) for number, word in enumerate(NUMERALS, start=1)}

# What divides parts; strong marks go before others.

COORDINATOR = re.compile(
    r"[;.]\s+|\n+|,?\s+(?:while|whereas|but)\s+|,\s+and\s+|\s+(?:and|or)\s+|,\s+", re.IGNORECASE
)
STRONG_COORDINATOR = re.compile(r"[;.]|\n|while|whereas|but|,\s+and", re.IGNORECASE)
BEHIND_SUBJECT = re.compile(r" (?:is|was|has|and)\b")
LONG_WORD = re.compile(r"\blong\b", re.IGNORECASE)
COPULA = re.compile(r"(?:\b(?:is|are|was|were|be|by|costs?|takes?|needs?|to|at)|:)\W*$", re.IGNORECASE)
SINCE_WORD = re.compile(r"\b(?:since|now|today|currently|afterwards)\b", re.IGNORECASE)
OFFICE = re.compile(
    r"\b(?:[Ww]ho(?: is| was| are|['’]s| works as| serves as| served as| acts as)|[Ww]hat(?: is|['’]s) the name of)"
    r"(?: currently| now)? (?:(?:the|our|your|its|their|acting) ([\w -]+?)|([a-z][a-z -]*?))"
    r"(?: (?:of|in|at|for|since|until|before|after|now|then|today|currently|on)\b|[^\w -]|$)"
)


@dataclass(frozen=True)
class Value:
    """A name, a time or an amount in a text; `start` and `end` in characters. `text` includes the unit, which `end`
    does not."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class CoordinatedPart:
    """A part of a sentence with its value; `start` and `end` in characters.

    keys    the stems that the other parts lack
    days    the days of the week that it names, 0 for Monday
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
    """Return the part that speaks of what the question names, and the other parts; None if no part does, or several.

    by_number  whether the question asks for a number or time rather than a name
    """
    if len(text) > MAX_CHARACTERS:
        return None
    answers = []
    for span in sentence_spans(text):
        parts = find_parts(question, form, text, [span], by_number=by_number)
        chosen = _choose(question, form, parts, by_number=by_number)
        if chosen is not None:
            answers.append((chosen, [part for part in parts if part is not chosen]))
    if len(answers) == 1:
        return answers[0]
    office = OFFICE.search(question)
    if answers or by_number or office is None:
        return None
    return _find_holder(question, form, office[1] or office[2], text)


def claims_part(question: str, form: Form, statement: str, text: str) -> bool | None:
    """Return whether a statement gives the value that the text has for its subject, or for the question's if it names
    none: False if it gives the value of another part, None if it gives neither or the text has no such parts.
    """
    for by_number in (True, False):
        values = _find_values(question, form, statement, 0, len(statement), by_number=by_number)
        if not values:
            continue
        subject = statement
        for value in reversed(values):
            subject = f"{subject[: value.start]} {subject[value.end :]}"
        answer = asked_part(subject, form, text, by_number=by_number)
        if answer is None:
            answer = asked_part(f"{question} {subject}", form, text, by_number=by_number)
        if answer is None:
            continue
        part, others = answer
        if form != "who" and not by_number and " " not in part.value.text:
            continue  # a technical name, not a person's
        stated = {_without_unit(value) for value in values}
        if _without_unit(part.value) in stated:
            return True
        if stated & {_without_unit(other.value) for other in others}:
            return False
    return None


def _without_unit(value: Value) -> str:
    """Return a value in lower case and figures, without its unit."""
    plain = value.text[: value.end - value.start].lower()
    return " ".join(IN_FIGURES.get(word, word) for word in plain.split())


def is_office_question(question: str) -> bool:
    return bool(OFFICE.search(question))


def find_parts(
    question: str, form: Form, text: str, spans: Sequence[tuple[int, int]], *, by_number: bool
) -> list[CoordinatedPart]:
    """Return the parts of sentences that have one value; the words of those with several are keys of no other part."""
    places: list[tuple[int, int, list[Value]]] = []
    for start, end in spans:
        values = _find_values(question, form, text, start, end, by_number=by_number)
        places += _divide(text, start, end, values)
    if len(places) < 2:
        return []
    # The stems before and behind each value, and in how many parts each stem is.
    before, behind = [], []
    part_counts: Counter[str] = Counter()
    for first, last, values in places:
        before.append(_stems(text[first : values[0].start]))
        behind.append(_stems(text[values[-1].end : last]))
        part_counts.update(before[-1] | behind[-1])
    own_stems = {stem for stem, count in part_counts.items() if count == 1}
    # What stands before the first value is often said of all: "The fee is 5 coins, and 9 coins for guests."
    opens_for_all = not any(before[1:]) and any(behind[1:])
    if opens_for_all or behind[0] - frozenset.intersection(*behind):
        before[0] = frozenset()
    parts = []
    period: Period | None = None
    for (first, last, values), stems_before, stems_behind in zip(places, before, behind, strict=True):
        period = _period(text[first:last], period)
        if len(values) == 1:
            keys = (stems_before | stems_behind) & own_stems
            days = weekdays(text[first:last])
            parts.append(CoordinatedPart(first, last, values[0], keys, days, period))
    return parts


def timely_clause(question: str, form: Form, text: str) -> tuple[int, int] | None:
    """Return the start and end of the only clause about the time of the question, in a sentence with clauses about
    other times: "until 2012 by the Lunds, and since then by the town". None if there is none."""
    time = asked_period(question)
    if time is None or form == "when" or len(text) > MAX_CHARACTERS:
        return None
    clauses = []
    for start, end in sentence_spans(text):
        ends = [mark.end() for mark in COORDINATOR.finditer(text, start, end)]
        dated: list[tuple[int, int, Period]] = []
        period: Period | None = None
        for clause_end in [*ends, end]:
            clause_period = _period(text[start:clause_end], period)
            if clause_period is not None:
                period = clause_period
                dated.append((start, clause_end, period))
            start = clause_end
        timely = [(first, last) for first, last, period in dated if overlap(period, time)]
        if len(timely) == 1 and len(dated) > 1:
            clauses += timely
    if len(clauses) != 1:
        return None
    return clauses[0]


def _stems(text: str) -> frozenset[str]:
    """Return the stems of a text's content words, also of "long"."""
    if LONG_WORD.search(text):
        return telling_stems(text) | {"long"}
    return telling_stems(text)


def _divide(text: str, start: int, end: int, values: Sequence[Value]) -> list[tuple[int, int, list[Value]]]:
    """Return the start, end and values of each part of a sentence; several values where nothing divides them."""
    if not values:
        return []
    # Whether words stand before the first value, and behind the last one.
    is_led = bool(_stems(text[start : values[0].start]))
    is_followed = bool(_stems(text[values[-1].end : end]))
    places = []
    part_values = [values[0]]
    for value, following in pairwise(values):
        border = _border(text, value.end, following.start, is_led=is_led, is_followed=is_followed)
        if border is not None:
            places.append((start, border, part_values))
            start, part_values = border, []
        part_values.append(following)
    return [*places, (start, end, part_values)]


def _border(text: str, start: int, end: int, *, is_led: bool, is_followed: bool) -> int | None:
    """Return where a new part begins between two values, of which the first ends at `start`; None if they belong to one
    part."""
    marks = list(COORDINATOR.finditer(text, start, end))
    if not marks:
        return None
    # What a value is for stands before it ("its chair, Ines Roth, its treasurer, Paul Vey") or behind it ("Ines Roth,
    # chair, Paul Vey, treasurer").
    stands_before = is_led
    if is_led and is_followed:
        stands_before = marks[0].start() == start and bool(COPULA.search(text[start:end]))
    strong = [mark for mark in marks if STRONG_COORDINATOR.search(mark[0])]
    if strong:
        marks = strong
    if stands_before:
        return marks[0].end()
    return marks[-1].end()


def _find_values(
    question: str, form: Form, text: str, start: int, end: int, *, by_number: bool
) -> list[Value]:
    if by_number:
        return _find_numbers(text, start, end, with_years=form == "when")
    return _find_names(question, text, start, end)


def _find_numbers(text: str, start: int, end: int, *, with_years: bool) -> list[Value]:
    values = []
    for match in NUMBER.finditer(text, start, end):
        if not with_years and YEAR.search(text[start : match.end()]):
            continue
        stop = match.end()
        unit = UNIT.match(text, stop, end)
        if unit and unit[1] not in NO_UNITS:
            stop = unit.end()
        elif match[0].lower() == "one":
            continue  # "the right one"
        if with_years and not TIME.search(text[match.start() : stop]):
            continue
        values.append(Value(text[match.start() : stop], match.start(), match.end()))
    return values


def _find_names(question: str, text: str, start: int, end: int) -> list[Value]:
    """Return the names, without words of the question at their beginning: "Treasurer Paul Vey"."""
    lower_case_stems = telling_stems(" ".join(LOWER_CASE.findall(question)))
    values = []
    for match in NAME.finditer(text, start, end):
        if text[match.end() : match.end() + 1] == ":":
            continue
        begin, name = match.start(), match[0]
        while name:
            first = name.split()[0]
            is_plain_word = first.lower() in PLAIN_WORDS or NO_NAME.match(first)
            if not is_plain_word and not (stems_of_word(first) & lower_case_stems):
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
    if period is None and previous is not None and SINCE_WORD.search(text):
        return min(previous[1], PRESENT_YEAR - 1), math.inf  # "Nora Lind until 2017 and Per Dahl since"
    return period


def _choose(
    question: str, form: Form, parts: Sequence[CoordinatedPart], *, by_number: bool
) -> CoordinatedPart | None:
    """Return the only part that speaks of what the question names: of its time or day, or with its words."""
    if not 2 <= len(parts) <= MAX_PARTS:
        return None
    question_stems, days, time = _stems(question), weekdays(question), asked_period(question)
    dated = [part for part in parts if part.period is not None]
    if form != "when" and len(dated) > 1:
        fitting = [part for part in dated if time and part.period and overlap(part.period, time)]
    elif form != "when" and time not in (None, (PRESENT_YEAR, PRESENT_YEAR)):
        return None  # no part says what held at that time
    elif any(part.days for part in parts):
        fitting = [part for part in parts if days and days <= part.days]
    else:
        fitting = [part for part in parts if part.keys & question_stems]
        if by_number and not fitting and not parts[0].keys:
            fitting = [parts[0]]  # the others are exceptions
        if len(fitting) > 1 or fitting == [parts[0]] or not by_number:
            fitting = [part for part in fitting if part.keys <= question_stems]
    if len(fitting) != 1:
        return None
    # A value that the question names is not its answer.
    value = fitting[0].value.text
    capitalised = set(CAPITALISED_WORD.findall(question))
    if telling_stems(value) <= question_stems or capitalised.intersection(CAPITALISED_WORD.findall(value)):
        return None
    return fitting[0]


def _find_holder(
    question: str, form: Form, office: str, text: str
) -> tuple[CoordinatedPart, list[CoordinatedPart]] | None:
    """Return the part with the holder of an office, and the other parts."""
    parts = find_parts(question, form, text, sentence_spans(text), by_number=False)
    time = asked_period(question)
    for stems in (telling_stems(question), telling_stems(office)):
        holders = [part for part in parts if stems and stems <= telling_stems(text[part.start : part.end])]
        if time is not None:
            holders = [part for part in holders if overlap(part.period or (PRESENT_YEAR, PRESENT_YEAR), time)]
        if len(holders) == 1:
            return holders[0], [part for part in parts if part is not holders[0]]
    return None
