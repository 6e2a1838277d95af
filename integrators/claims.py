"""The claims that an LLM's answer makes: its sentences with their marks, the clauses of each, names and numbers.

An answer is a claim made of question and answer ("SQLite was started by SQLite"), never of the answer's words alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kcard.embedded.reader import TECHNICAL
from kcard.selectors.minilm_checker import SPELLED_NUMBERS
from kcard.text import (
    command_options,
    sentence_spans,
    small_words,
    words,
)

# Marks: the documents that the LLM names after a sentence, such as [1]. They say where to look first and prove nothing.

MARK = re.compile(
    r"[ \t]*[\[(](?:documents?|passages?|docs?)?\s*(\d{1,2}(?:\s*(?:,|;|and|&)\s*\[?\d{1,2}\]?)*)[\])](?!\()",
    re.IGNORECASE,
)
CODE_OR_QUOTATION = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`|“[^”\n]*”|(?<!\w)\"[^\"\n]*\"(?!\w)", re.DOTALL)


OPENING_STOP = re.compile(r"^[.,:;](?:\s+|$)")


@dataclass(frozen=True)
class MarkedSentence:
    """A sentence without its marks; `marks`: the numbers of the documents that it names, from 0."""

    text: str
    marks: frozenset[int] = frozenset()


def without_marks(text: str, texts: Sequence[str]) -> tuple[str, list[MarkedSentence]]:
    """Return the answer without the marks that name one of the texts, and its sentences with them.

    What stands in brackets in code, or in a text itself, is no mark: "argv[1]"; nor is what names no text.
    """
    plain, places, at = "", [], 0
    literal = [
        part.span()
        for part in CODE_OR_QUOTATION.finditer(text)
        if part[0].startswith("`") or any(part[0][1:-1] in t for t in texts)
    ]
    for match in MARK.finditer(text):
        numbers = {int(number) - 1 for number in re.findall(r"\d+", match[1])}
        if min(numbers) < 0 or max(numbers) >= len(texts):
            continue
        if match[0].lstrip().startswith("(") and not re.search("[a-z]", match[0], re.IGNORECASE):
            continue
        if any(start < match.end() <= end for start, end in literal):
            continue
        # "argv[1]", where a text has it.
        word = re.split(r"\s", text[: match.start()])[-1]
        is_code = bool(re.search(r"\w$", word)) and not match[0][0].isspace()
        if is_code and any(f"{word}{match[0]}" in t for t in texts):
            continue
        plain += text[at : match.start()]
        at = match.end()
        opens_line = not plain.rpartition("\n")[2].strip()
        if opens_line:  # what follows is not indented by it
            at += len(text[at:]) - len(text[at:].lstrip(" "))
        places.append((len(plain), numbers))
    plain += text[at:]
    # A mark belongs to the sentence before it, at the start of a line to the one behind it.
    spans = sentence_spans(plain)
    marks: list[set[int]] = [set() for _ in spans]
    for place, numbers in places:
        following = sum(start < place for start, _ in spans)
        is_line_start = not plain[:place].rpartition("\n")[2].strip()
        owner = following if is_line_start else following - 1
        if 0 <= owner < len(spans):
            marks[owner] |= numbers
    sentences = [MarkedSentence(plain[a:b], frozenset(own)) for (a, b), own in zip(spans, marks, strict=True)]
    lines = [line.rstrip() for line in plain.strip().split("\n")]
    if places:
        lines = [OPENING_STOP.sub("", line) for line in lines]  # "[1]. Then" begins with no full stop
    return "\n".join(lines).strip(), sentences


# Clauses and claims.

MAX_SENTENCES = 24  # of an answer that are checked
CLAUSE = re.compile(r";\s+|,\s+(?:and|but|while|whereas|which|who|where)\s+")
ITEM = re.compile(r"[;,]\s+(?:(?:and|but|then|while|whereas|which|who|where)\s+)?")
ITEMS = 3  # parts of a sentence, all of them clauses, from which it is an enumeration
SHORT_CLAUSE = 4  # words, below which a part is no clause of its own
SHORT_ANSWER = 5  # words, up to which an answer is no sentence
YES_OR_NO = re.compile(r"^(?:yes|no)\b[\s,.:;–—-]*", re.IGNORECASE)
AUXILIARY = "is|are|was|were|do|does|did|can|could|will|would|should|has|have|had"
QUESTION_WORDS = re.compile(
    r"^(?:(?:to|by|from|with|for|of|since|until|in|on|at) )?"
    r"(?:who|whom|whose|when|where|why|how(?: (?:many|much|long|often))?|which|what)\b"
    rf"(?:\s+(?:{AUXILIARY})\b)?\s*",
    re.IGNORECASE,
)
SUBJECT = re.compile(rf"^(?:who|what)\s+(?!(?:{AUXILIARY})\b)(?=\w)", re.IGNORECASE)


def clauses(sentence: str) -> list[str]:
    """Split a sentence into its clauses; a part of fewer than four words stays with the one before it.

    An enumeration of three and more is split at each comma: "Open a channel, name a commander, and write a summary."
    """
    items = ITEM.split(sentence)
    if len(items) >= ITEMS and all(len(words(item)) >= SHORT_CLAUSE for item in items):
        return items
    parts: list[str] = []
    at = 0
    for border in CLAUSE.finditer(sentence):
        part = sentence[at : border.start()]
        rest = sentence[border.end() :]
        if min(len(words(part)), len(words(rest))) >= SHORT_CLAUSE:
            parts.append(part)
            at = border.end()
    return [*parts, sentence[at:]]


def claim_of(question: str, answer: str) -> str:
    """Return the statement that question and answer make together; a yes or no before more words is left out."""
    answer = (YES_OR_NO.sub("", answer) or answer).strip().rstrip(".")
    if len(words(answer)) > SHORT_ANSWER:
        return f"{answer}."
    stripped = " ".join(question.split()).rstrip("?.! ")
    if SUBJECT.match(stripped):
        return f"{answer} {SUBJECT.sub('', stripped)}."
    rest = QUESTION_WORDS.sub("", stripped)
    return f"{rest}: {answer}."


# Specifics: what can't be said in other words - numbers, names, options, paths.

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)*")
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
MONTH_NUMBERS = {name: str(number) for number, name in enumerate(MONTHS, start=1)}
NAME = re.compile(r"(?<![\w.])[A-Z][\w'’-]*\w(?:\s+[A-Z][\w'’-]*\w)*")
NAME_ALONE = 2  # words of a text, in which the first may be a name
RUN = re.compile(r"[^\s,;()\[\]{}\"'“”‘’`*|]+")


def specifics(text: str) -> frozenset[str]:
    """Return the numbers, names, options and technical words of a sentence, in one spelling.

    A capitalised word that opens the sentence counts only with another one behind it, or if there is hardly more.
    """
    names_found = set(numbers_of(text)) | set(command_options(text))
    opening = len(text) - len(text.lstrip("\"'“‘`*- "))
    for match in NAME.finditer(text):
        names = words(match[0])
        if match.start() <= opening and len(names) == 1 and len(words(text)) > NAME_ALONE:
            continue
        if match.start() <= opening and names[0] in small_words("en"):
            names = names[1:]
        names_found.update(name for name in names if name not in small_words("en"))
    for match in RUN.finditer(text):
        run = match[0].rstrip(".:!?")
        if TECHNICAL.search(run):
            names_found.add(run.lower())
    return frozenset(names_found)


def holds(text: str, specific: str) -> bool:
    """Return whether a text has a specific in some spelling."""
    present = _known(text)
    return specific in present or (TECHNICAL.search(specific) is not None and specific in text.lower())


def numbers_of(text: str) -> set[str]:
    """Return the numbers without thousands commas and leading zeros."""
    plain = {number.replace(",", "").rstrip(".") for number in NUMBER.findall(text)}
    return {number.lstrip("0") or "0" for number in plain}


@lru_cache(maxsize=4096)
def _known(text: str) -> frozenset[str]:
    """Return the words of a text, its numbers in figures, and its options."""
    all_words = words(text)
    spelled = {SPELLED_NUMBERS[word] for word in all_words if word in SPELLED_NUMBERS}
    months = {MONTH_NUMBERS[word] for word in all_words if word in MONTH_NUMBERS}
    return frozenset({*all_words, *spelled, *months, *numbers_of(text), *command_options(text)})
