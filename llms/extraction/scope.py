"""The part of a passage that speaks of what is asked, which the reader is to read without its siblings.

The reader weighs words, not times and contrasts: asked what something costs, it may take the price of the next row, or
that of an earlier year. What speaks of something else is therefore left out, if the rest has the question's words.
"""

import re
from collections.abc import Sequence

from kcard.embedded.question_forms import CONTENT_WORD, MONTH, Form, meaning_stems
from kcard.llms.extraction.tables import best_row, rows_of
from kcard.llms.extraction.times import PRESENT_YEAR, asked_period, overlap, period_of
from kcard.llms.extraction.verdicts import PREPOSITIONS
from kcard.text import sentence_spans

IN_WORDS: tuple[Form, ...] = ("who", "what", "when", "where", "how many")  # forms that one place answers
# A sentence that takes its subject from the one before.
LEANING_OPENING = re.compile(
    r"\b(?:it|its|this|that|these|those|they|them|their|he|she|his|her|one|such|both)\b", re.IGNORECASE
)
MAX_SIBLING_WORDS = 15  # of a sentence about another subject
MIN_SHARED_WORDS, MIN_SHARED_PART = 2, 0.6  # of a predicate, from which two sentences say alike
CLAUSE = re.compile(r";\s+")
SUPERLATIVE = re.compile(r"\b(?:\w{2,}est|first|last|most|least|best|worst)\b", re.IGNORECASE)


# Versions, models and identifiers with digits: "v1.6.0", "model K9", "Orla 30", but not "May 2020".
VERSION = re.compile(
    r"(?<![\w.])v?\d+(?:\.\d+)+[a-z]?\d*\b|(?<![\w-])(?=[\w-]*[A-Za-z])(?=[\w-]*\d)[\w-]+\b"
    rf"|(?<=[a-z] )(?!{MONTH} )(?:[A-Z][\w&]*|version|release|model|type|edition) (?P<number>\d+)(?![\w.])"
)
AMOUNT = re.compile(r"\d+(?:st|nd|rd|th|min|[a-z]{1,2})", re.IGNORECASE)  # also "3rd", "9am", "5kg"
PARTS = re.compile(r"[a-z]+|[\d.]+")


def names_unknown_version(question: str, texts: Sequence[str]) -> bool:
    """Return whether the question names a version, model or identifier with digits that no text has."""
    for match in VERSION.finditer(question):
        name = match["number"] or match[0]
        if AMOUNT.fullmatch(name):
            continue
        # "K7" is "K-7" and "k 7".
        parts = [re.escape(part) for part in PARTS.findall(name.lower().removeprefix("v"))]
        spelling = re.compile(rf"(?<!\d){r'[^a-z0-9]*'.join(parts)}(?!\d)", re.IGNORECASE)
        if not any(spelling.search(text) for text in texts):
            return True
    return False


def in_scope(question: str, form: Form, text: str) -> str:
    """Return a passage without rows of other things, sentences of other times or subjects, and clauses about siblings.
    Lines and sentences that are left stay as they are."""
    if form not in IN_WORDS:
        return text
    return keep_clause(question, keep_subject(question, keep_times(question, form, keep_row(question, text))))


def keep_row(question: str, text: str) -> str:
    """Leave out the other rows of a table, if the question names one."""
    rows = rows_of(text, 0)
    if len(rows) < 2:
        return text
    row = best_row(question, rows)
    if row is None:
        return text
    others = {other.line for other in rows} - {row.line}
    left = [line for line in text.split("\n") if line.strip() not in others]
    return "\n".join(left)


def keep_times(question: str, form: Form, text: str) -> str:
    """Leave out sentences of another time than the question's, if one of its time or of none has their words of it;
    for a year that a sentence's period includes, also those of no time."""
    if form == "when":
        return text
    time = asked_period(question)
    if time is None:
        return text
    stems = meaning_stems(question)
    spans = sentence_spans(text)
    is_now = time == (PRESENT_YEAR, PRESENT_YEAR)
    shared: list[frozenset[str]] = []  # words of the question in each sentence
    fitting, open_ended = [], []
    for at, (start, end) in enumerate(spans):
        sentence = text[start:end]
        shared.append(stems & meaning_stems(sentence))
        period = period_of(sentence)
        # A sentence about one year may still hold.
        if period is None or overlap(time, period) or (is_now and period[0] == period[1]):
            fitting.append(at)
        if period is not None and not is_now and overlap(time, period) and shared[at]:
            open_ended.append(at)
    rivals = open_ended or fitting
    dropped = []
    for at, span in enumerate(spans):
        is_rival = at in rivals or not shared[at]
        if not is_rival and any(shared[at] <= shared[other] for other in rivals):
            dropped.append(span)
    return _without(text, dropped)


def keep_subject(question: str, text: str) -> str:
    """Leave out sentences that say of another subject what one says of the question's: "Carters pay 5 coins" where it
    asks what millers pay."""
    stems = meaning_stems(question)
    spans = sentence_spans(text)
    sentences = [text[start:end] for start, end in spans]
    subjects = [_first_content_stem(sentence) for sentence in sentences]
    predicates = [_stems_without_numbers(sentence) for sentence in sentences]
    about = [at for at, subject in enumerate(subjects) if subject in stems]
    dropped = []
    for at, sentence in enumerate(sentences):
        words = sentence.split()
        is_plain = words[0][0].isupper() and words[0].lower() not in PREPOSITIONS
        if not is_plain or len(words) > MAX_SIBLING_WORDS or not sentence.endswith("."):
            continue
        if subjects[at] in stems or not predicates[at] & stems or LEANING_OPENING.search(sentence):
            continue
        predicate = predicates[at] - {subjects[at]}
        shared = 0
        for other in about:
            shared = max(shared, len(predicate & predicates[other]))
        if shared >= MIN_SHARED_WORDS and shared >= MIN_SHARED_PART * len(predicate):
            dropped.append(spans[at])
    return _without(text, dropped)


def _stems_without_numbers(sentence: str) -> frozenset[str]:
    return frozenset(stem for stem in meaning_stems(sentence) if not stem.isdigit())


def _first_content_stem(sentence: str) -> str:
    for word in CONTENT_WORD.findall(sentence):
        for stem in meaning_stems(word):
            return stem
    return ""


def keep_clause(question: str, text: str) -> str:
    """Of a sentence whose clauses are divided by semicolons, leave out all but the only one with a superlative of the
    question, such as "the newest", that nothing else in the passage has."""
    stems = meaning_stems(" ".join(SUPERLATIVE.findall(question)))
    if not stems:
        return text
    dropped: list[tuple[int, int]] = []
    for start, end in sentence_spans(text):
        places, at = [], start
        for mark in CLAUSE.finditer(text, start, end):
            places.append((at, mark.end()))
            at = mark.end()
        places.append((at, end))
        if len(places) == 1:
            continue
        rest = meaning_stems(text[:start]) | meaning_stems(text[end:])
        own = [(stems & meaning_stems(text[first:last])) - rest for first, last in places]
        common = frozenset.intersection(*own)
        telling, others = [], []
        for place, words in zip(places, own, strict=True):
            if words - common:
                telling.append(place)
            else:
                others.append(place)
        if len(telling) == 1:
            dropped += others
    return _without(text, dropped)


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """Return a text without these parts, a line break in place of each."""
    if not spans:
        return text
    for start, end in reversed(spans):
        text = f"{text[:start].rstrip()}\n{text[end:].lstrip()}"
    return text.strip()
