"""Clauses of sentences, what each of them affirms or denies, and what it takes from the one before.

A sentence may allow one thing and forbid another ("in the garden but not on the terraces"), so it is cut into clauses.
What an elliptic clause leaves out is taken from the one before it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from kcard.embedded.question_forms import CONTENT_WORD, FUNCTION_WORDS, STEMS, SYNONYMS
from kcard.llms.extraction.times import DAY_WORDS, weekdays
from kcard.text import LIST_MARK

# Words that decide.

# "any price or no price" and "whether or not" negate nothing.
NEGATION = re.compile(
    r"(?<!\bor )\b(?:not|never|no|cannot|nor|neither|none|nothing|nobody)\b|n['’]t\b", re.IGNORECASE
)
NO_NEGATION = re.compile(
    r"\b(?:not only|no (?:later|earlier|more|less|fewer) than|no matter)\b", re.IGNORECASE
)
AUXILIARY = re.compile(
    r"\b(?:is|are|am|was|were|be|been|do|does|did|has|have|had|can|could|may|might|must|shall|should|will|would|need"
    r"|cannot)(?:n['’]t)?\b",
    re.IGNORECASE,
)
BAN = re.compile(
    r"\b(?:forbidden|forbids?|prohibited|prohibits?|bans?|banned|barred|disallowed|refused|denied|illegal|unlawful"
    r"|dangerous|unsafe|off limits)\b",
    re.IGNORECASE,
)

# Words that carry no content here: those of permission and duty, and verbs that stand for many others.
_LIGHT_WORDS = """
allow allowed allows permit permitted permits forbidden forbid forbids prohibited prohibits ban bans banned barred
disallowed refused denied illegal unlawful welcome possible able ok okay entitled eligible required require requires
necessary mandatory compulsory obligatory obliged need needed needs use used using get go come take bring make become
becomes stay stays keep having being am shall cannot per any all every each some someone anyone anybody everybody
everything anything ever really still actually already just simply also too either both only even them they he she him
her one ones but s t re ll ve d don doesn isn aren won can't don't please now today version versions currently never
none nor neither nothing nobody fine perfectly safe safely good idea dangerous unsafe different note want
wants
"""
LIGHT_WORDS = FUNCTION_WORDS | frozenset(_LIGHT_WORDS.split())

# Idioms, and the plain words for them.
IDIOMS = (
    (re.compile(r"\b(?:play|playing) around with\b", re.IGNORECASE), "try"),
    (re.compile(r"\b(?:more than one|multiple)\b", re.IGNORECASE), "several"),
    (re.compile(r"\bnext to\b", re.IGNORECASE), "beside"),
    (re.compile(r"\bat (?:the same|a) time\b", re.IGNORECASE), "at once"),
    (re.compile(r"\bwithout (?:any )?(?:danger|risk) of\b", re.IGNORECASE), "without"),
    (re.compile(r" in any way\b", re.IGNORECASE), ""),
)

# Where clauses begin.

CUT = re.compile(
    r"[;:]\s+"
    r"|,?\s+(?=(?:but|except|unless|although|though|whereas|apart from|other than|save for"
    r"|with the exception of|provided that|as long as)\b)"
    r"|,\s+(?=(?:not|never|none|nor|and|so|when|where|which|who|if|even|while|neither)\b)"
    r"|,\s+(?=(?:\w+ ){1,8}(?:is|are|was|were|do|does|did|may|must|can|has|have)(?: not|n['’]t)\W*$)"
    r"|\s+(?=(?:and|or) (?:it|they|he|she|is|are|must|may|can|cannot|do|does|will)\b)",
    re.IGNORECASE,
)
WITHOUT = re.compile(r"(?<!\bbut)(?<!\bthough),?\s+(?=without\b)", re.IGNORECASE)
EXCEPTION = re.compile(
    r"(?:but )?(?:except|unless|apart from|other than|save for|with the exception of)\b", re.IGNORECASE
)
CONTRAST = re.compile(r"(?:but|although|though|whereas|not|never|none|nor|neither|without)\b", re.IGNORECASE)
LINK = re.compile(
    r"\A(?:but|and|or|so|although|though|whereas|when|where|which|who|if|even|while|except|unless|provided that"
    r"|as long as)\s+",
    re.IGNORECASE,
)
ANAPHORIC = re.compile(r"\A(?:it|they|he|she|this|these|those|that|both|such)\b", re.IGNORECASE)
REFERRING_WORD = re.compile(r"\b(?:it|them|they|him|her)\b|\b(?:ones?|so)\b(?=\W*$)", re.IGNORECASE)
DIGIT = re.compile(r"\d")
CUT_SHORT = re.compile(rf"{AUXILIARY.pattern}(?: not)?[.!]*$", re.IGNORECASE)
LEADING_WITHOUT = re.compile(r"(?:(?:but|though|although) )?without\b", re.IGNORECASE)
TASK = re.compile(r"\s*(?:[-*•]\s*)?\[([ xX])\]\s*")  # of a list of tasks, done or not


# Clauses.


@dataclass(frozen=True)
class SpokenClause:
    """A clause of a sentence.

    text         as it stands, without the word that links it to the one before
    context      with the text of the clause before, if it takes all of that
    stems        its own content words
    inherited    those that it leaves out and takes from the clause before
    days         the days of the week that it names, or takes from there
    subject      what stands before its first auxiliary, or that of the clause whose subject it shares
    says         1 if it affirms, -1 if it denies or forbids
    first, row   the numbers of the sentences in which its inherited words and its own begin
    is_opposed   whether it limits the clause before: "but not ..."
    is_exception  whether it, or the clause that it goes on, names an exception: "except on Fridays, when ..."
    """

    text: str
    context: str
    stems: frozenset[str]
    inherited: frozenset[str]
    days: frozenset[int]
    subject: str
    says: int
    first: int
    row: int
    is_opposed: bool = False
    is_exception: bool = False

    @property
    def all_stems(self) -> frozenset[str]:
        return self.stems | self.inherited


def with_plain_idioms(text: str) -> str:
    for idiom, plain in IDIOMS:
        text = idiom.sub(plain, text)
    return text


@cache
def light_stems() -> frozenset[str]:
    stems = set[str]()
    for word in LIGHT_WORDS:
        stems |= stems_of_word(word)
    return frozenset(stems)


def stems_of_word(word: str) -> frozenset[str]:
    """Return the stems of a word, one for all of its synonyms."""
    return frozenset(SYNONYMS.get(stem, stem) for stem in STEMS(word))


def telling_stems(text: str) -> frozenset[str]:
    """Return the stems of a text's content words, one for all synonyms, and its numbers; without days of the week."""
    stems = set[str]()
    for word in CONTENT_WORD.findall(DAY_WORDS.sub(" ", text)):
        if DIGIT.search(word):
            stems.add(word.lower())
        elif word.lower() not in LIGHT_WORDS:
            stems |= stems_of_word(word)
    return frozenset(stems)


def sign_of(text: str) -> int:
    """Return 1 if a clause affirms, -1 if it denies or forbids."""
    negations = int(bool(NEGATION.search(NO_NEGATION.sub(" ", text)))) + len(BAN.findall(text))
    if negations % 2:
        return -1
    return 1


def clauses_of(sentences: Sequence[str], *, cuts_without: bool) -> list[SpokenClause]:
    """Cut sentences into clauses, in order. `cuts_without`: whether "without" begins one."""
    clauses: list[SpokenClause] = []
    for row, sentence in enumerate(sentences):
        task = TASK.match(sentence)
        plain = LIST_MARK.sub("", sentence)
        if task:
            plain = sentence[task.end() :]
        parts = []
        for part in CUT.split(with_plain_idioms(plain)):
            if cuts_without:
                parts += WITHOUT.split(part)
            else:
                parts.append(part)
        for at, part in enumerate(parts):
            text = part.strip()
            if not text:
                continue
            goes_on = at > 0 or bool(
                ANAPHORIC.match(text) or REFERRING_WORD.search(text) or _is_cut_short(text)
            )
            before = None
            if clauses and goes_on:
                before = clauses[-1]
            clause = _make_clause(text, before, row, is_first=at == 0)
            if task and task[1] == " ":
                clause = replace(clause, says=-1)
            elif task:
                clause = replace(clause, says=1)
            clauses.append(clause)
    return clauses


def _is_cut_short(text: str) -> bool:
    """Return whether a clause ends in an auxiliary, as in "dogs are not"."""
    return bool(CUT_SHORT.search(text))


def _make_clause(text: str, before: SpokenClause | None, row: int, *, is_first: bool) -> SpokenClause:
    """Return the clause with what it takes from the one before: all of it, only its subject, or nothing."""
    is_exception = not is_first and bool(EXCEPTION.match(text))
    is_opposed = not is_first and bool(is_exception or CONTRAST.match(text))
    plain = text
    if not is_first:
        plain = LINK.sub("", LINK.sub("", text))
    auxiliary = AUXILIARY.search(plain)
    opening = ""
    if auxiliary and telling_stems(plain[: auxiliary.start()]):
        opening = plain[: auxiliary.start()]
    days, sign = weekdays(plain), sign_of(text)
    inherited: frozenset[str] = frozenset()
    subject, context, first = opening, plain, row
    if before is not None:
        begins = bool(ANAPHORIC.match(plain)) or (auxiliary is not None and auxiliary.start() == 0)
        refers = bool(REFERRING_WORD.search(ANAPHORIC.sub("", plain, count=1)))
        takes_all = is_exception or _is_cut_short(plain) or refers
        takes_all = takes_all or (is_opposed and auxiliary is None)
        if takes_all:
            inherited, context = before.all_stems, f"{before.context} {plain}"
        elif begins:
            inherited = telling_stems(before.subject) or before.all_stems
        if takes_all or before.is_exception:
            days = days or before.days
        if inherited:
            first = before.first
        if begins or not opening or is_exception:
            subject = before.subject
        is_without = bool(LEADING_WITHOUT.match(text))
        if is_exception or (is_without and auxiliary is None):
            sign = -before.says
        is_exception = is_exception or (before.is_exception and not is_opposed and before.row == row)
    return SpokenClause(
        plain,
        context,
        telling_stems(plain),
        inherited,
        days,
        subject,
        sign,
        first,
        row,
        is_opposed,
        is_exception,
    )
