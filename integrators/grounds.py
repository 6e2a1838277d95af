"""What tells whether passages say what a clause of an answer claims. Every signal compares a passage with the claim
that question and answer make together.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from kcard.embedded.question_forms import (
    HOW_MANY,
    SENTENCES,
    STEMS,
    Form,
    content_stems,
    counts_in,
    counts_nothing,
    fits,
    form_of,
    share_of,
)
from kcard.embedded.reader import PassageReading, read_all
from kcard.integrators.claims import (
    MAX_SENTENCES,
    YES_OR_NO,
    MarkedSentence,
    clauses,
    holds,
    numbers_of,
    specifics,
)
from kcard.interfaces import Verdict
from kcard.llms.extraction.clauses import NEGATION, SpokenClause, clauses_of, light_stems, telling_stems
from kcard.llms.extraction.coordination import claims_part
from kcard.llms.extraction.entries import names_of
from kcard.llms.extraction.extract import examine
from kcard.llms.extraction.tables import LABELLED_LINE
from kcard.llms.extraction.times import PRESENT as NOW_WORDS
from kcard.llms.extraction.times import PRESENT_YEAR, asked_period, period_of
from kcard.llms.extraction.verdicts import PAST, PRESENT
from kcard.selectors.minilm_checker import SPELLED_NUMBERS
from kcard.text import (
    LIST_MARK,
    analyzer,
    spaced_words,
    split_sentences,
    words,
)

LOCAL = 2  # sentences in a window
MAX_LOG_ODDS = 8.0  # log-odds are clipped to this
# Stems of words that carry no content in a claim: "lets users read", for "members can read".
LINKING_VERBS = frozenset(STEMS("let lets allow allows permit permits enable enables make makes"))
OPTION_WORD = re.compile(r"(?<!\w)-[\w-]+")
# What is named: "use the option --rate" says no more than "--rate".
TERM_KINDS = frozenset(
    STEMS("option flag switch command setting argument parameter variable function method")
)
PEOPLE = frozenset(STEMS("user users member members people person"))
PAST_WORDS = re.compile(r"\b(?:until|till|formerly|previously|used to)\b", re.IGNORECASE)
SINCE = re.compile(r"\b(?:since|now|today|currently|nowadays)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Window:
    """One or two sentences of a passage; `evidence`: the reader's log-odds that the question's answer rests on them."""

    passage: int
    text: str
    evidence: float


@dataclass(frozen=True)
class Reading:
    """What the embedded models see in the passages of a question, whatever the answer is.

    texts        the passages as the LLM read them
    readings     of the embedded reader
    answer       the reader's own answer, "" if it has none; its sentence, its passage, the probability that it is
                 right, and whether it is a few words
    names        the names of the option or command that the reader's answer is, such as "-r" and "--rate"
    """

    question: str
    form: Form
    texts: tuple[str, ...]
    readings: tuple[PassageReading, ...]
    answer: str = ""
    quote: str = ""
    passage: int = 0
    probability: float = 0.0
    in_words: bool = False
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, question: str, texts: Sequence[str], headings: Sequence[str] = ()) -> "Reading":
        """Read texts, each of which begins with its heading ("" for none)."""
        [readings] = read_all([(question, texts)])
        examined = examine(question, texts, headings)
        reading = cls(question, form_of(question), tuple(texts), tuple(readings))
        if examined is None:
            return reading
        own, _ = examined
        return replace(
            reading,
            answer=own.term or own.text,
            quote=own.quote,
            passage=own.passage,
            probability=own.probability,
            in_words=own.words or bool(own.term),
            names=names_of(own.term.lower()),
        )

    @cached_property
    def stems(self) -> frozenset[str]:
        return frozenset(content_stems(self.question))

    def says_own_answer(self, clause: str) -> bool:
        """Return whether a clause says that the reader's own answer, a few words, is the answer, and nothing else."""
        explained = self.stems | content_stems(self.answer) | LINKING_VERBS | TERM_KINDS | light_stems()
        rest = content_stems(clause) - explained
        is_denied = NEGATION.search(OPTION_WORD.sub(" ", clause))
        return self.in_words and self.agreement(clause) > 0 and not rest and not is_denied

    def agreement(self, clause: str) -> float:
        """Return the share of the reader's own answer in a clause; of an option, whether one of its names is there."""
        if self.names:
            return float(any(holds(clause, name) for name in self.names))
        return share_of(content_stems(self.answer) - self.stems, clause)

    @cached_property
    def clauses(self) -> list[SpokenClause]:
        """The clauses of all passages."""
        spoken = []
        for text in self.texts:
            spoken += clauses_of(split_sentences(text), cuts_without=False)
        return spoken

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        windows = []
        for number, (text, reading) in enumerate(zip(self.texts, self.readings, strict=True)):
            sentences = reading.sentences
            for first in range(len(sentences)):
                for last in range(first, min(first + LOCAL, len(sentences))):
                    evidence = max(sentence.evidence for sentence in sentences[first : last + 1])
                    windows.append(
                        Window(number, text[sentences[first].start : sentences[last].end], evidence)
                    )
        return tuple(windows)


def best_window(reading: Reading, clause: str, marks: frozenset[int]) -> Window | None:
    """Return the window that has most of a clause's own specifics and words, then of the question's; of equals a marked
    one."""
    stems = content_stems(clause)
    new = stems - reading.stems
    named = [name for name in specifics(clause) if not holds(reading.question, name)]

    def score(window: Window) -> float:
        stems_there = _stems(window.text)
        own = 2 * len(new & stems_there) / max(1, len(new)) + len(stems & stems_there) / max(1, len(stems))
        exact = 2 * sum(holds(window.text, name) for name in named) / max(1, len(named))
        question_share = 0.5 * len(reading.stems & stems_there) / max(1, len(reading.stems))
        evidence = 0.02 * max(-MAX_LOG_ODDS, min(MAX_LOG_ODDS, window.evidence))
        length = 0.0005 * len(window.text.split())
        return own + exact + question_share + 0.1 * (window.passage in marks) + evidence - length

    return max(reading.windows, key=score, default=None)


@lru_cache(maxsize=4096)
def _stems(text: str) -> frozenset[str]:
    return frozenset(analyzer("english")(text))


def fits_form(reading: Reading, clause: str) -> bool:
    """Return whether the words of the clause that the question lacks can answer a question of its form."""
    question_words = {*words(reading.question)}
    own = " ".join(word for word in words(clause) if word not in question_words)
    return not own or (fits(reading.form, own) and not counts_nothing(reading.question, clause))


def speaks_of_another(reading: Reading, clause: str) -> bool:
    """Return whether the clause's own words stand only where the passages speak of something else than the question:
    in clauses of the past, while others speak of the present that it asks about, or, of "who", in clauses with fewer of
    its words than one with another name: "it was founded by Mara Quill; since 2021 it is led by Jonas Feld", where it
    asks who leads it."""
    if reading.form in (*SENTENCES, "yes/no", "when"):
        return False
    query = telling_stems(reading.question)
    own_stems = telling_stems(clause) - query - light_stems()
    clauses_there = reading.clauses
    most = max((len(own_stems & spoken.stems) for spoken in clauses_there), default=0)
    holding = [spoken for spoken in clauses_there if most and len(own_stems & spoken.stems) == most]
    rivals = [spoken for spoken in clauses_there if not own_stems & spoken.stems and spoken.all_stems & query]
    if not holding or not rivals:
        return False
    # Of another time.
    asks_now = asked_period(reading.question) == (PRESENT_YEAR, PRESENT_YEAR)
    if asks_now and all(is_former(spoken.text) for spoken in holding):
        names_time = bool(
            NOW_WORDS.search(reading.question) or any(PAST_WORDS.search(h.text) for h in holding)
        )
        for rival in rivals:
            is_since = bool(SINCE.search(rival.text))
            is_present = is_since or bool(PRESENT.search(rival.text))
            if is_present and not is_former(rival.text) and (names_time or is_since):
                return True
    # Of another deed.
    if reading.form == "who":
        covered = [query & spoken.all_stems for spoken in holding]
        for rival in rivals:
            has_name = bool(specifics(rival.text) - set(words(reading.question)))
            if has_name and all(own < query & rival.all_stems for own in covered):
                return True
    return False


def is_under_other_label(reading: Reading, clause: str) -> bool:
    """Return whether most of the clause's own words stand in a line such as "tape: It ..." that is about something else
    than the line whose label the question names."""
    query = telling_stems(reading.question)
    own_stems = telling_stems(clause) - query - light_stems()
    in_named: list[int] = []
    in_others = [0]
    for text in reading.texts:
        for line in text.split("\n"):
            labelled = LABELLED_LINE.match(LIST_MARK.sub("", line.strip()))
            if labelled is None:
                continue
            is_named = telling_stems(labelled[1]) <= query
            (in_named if is_named else in_others).append(len(own_stems & telling_stems(labelled[2])))
    return bool(in_named) and max(in_named) < max(in_others)


def counts_otherwise(reading: Reading, clause: str, text: str) -> bool:
    """Return whether the question asks how many there are, and the text has the clause's numbers where they count
    nothing: of a version, model, date or time."""
    if not HOW_MANY.search(reading.question):
        return False
    own = numbers_of(clause) - numbers_of(reading.question)
    counted = numbers_of(" ".join(counts_in(text)))
    spelled = {SPELLED_NUMBERS[word] for word in words(text) if word in SPELLED_NUMBERS}
    return bool(own & numbers_of(text)) and not own & (counted | spelled)


def is_former(clause: str) -> bool:
    """Return whether a clause speaks of the past alone."""
    if PAST_WORDS.search(clause):
        return True
    return (
        bool(PAST.search(clause) or period_of(clause))
        and not PRESENT.search(clause)
        and not SINCE.search(clause)
    )


def clause_features(reading: Reading, clause: str, window: Window, verdict: Verdict) -> dict[str, float]:
    """Return what tells whether a window of the passages says what question and clause claim.

    verdict  of the checker, on the claim and the window's passage

    checker, refuted   the checker's probabilities
    found, missing     logarithm of 1 and the number of the clause's own words, which the question lacks, that the
                       window has, and that it lacks
    own words          their share in the window
    question's words   the share of the question's words in the window
    repeats            whether the clause has no words but the question's: "SQLite" never started SQLite
    lacking, outside, away  whether a number, name or option is in no passage, in another one, outside the window
    span               how likely the reader takes words for the answer that the clause has, in [0, 1]
    agreed             the share of the reader's own answer in the clause; times the probability of that answer, and
                       the probability of a disagreement
    evidence, relevance  the reader's log-odds that the answer rests on the window, and that its passage answers
    misfit             whether the clause has no words of the kind that the question asks for, such as a time for "when"
    negation           whether one of clause and window has a negation, and the other has none
    of another         whether the passages have the clause's words where they speak of another time, deed or part
    of the part        whether they give the clause's value for just what it speaks of, in a sentence that gives others
    """
    text, stems_there = reading.texts[window.passage], _stems(window.text)
    plain = YES_OR_NO.sub("", clause)
    # Yes or no alone claims what the question says.
    new = content_stems(plain) - reading.stems - LINKING_VERBS if words(plain) else reading.stems
    if stems_there & PEOPLE:
        new -= PEOPLE
    clause_words = spaced_words(clause)
    # Specifics that the question did not bring.
    named = [name for name in specifics(plain) if not holds(reading.question, name)]
    # The reader's spans, of which the clause has one or is a part.
    span = 0.0
    best = max(passage.relevance for passage in reading.readings)
    for passage in reading.readings:
        weight = math.exp(max(-20.0, passage.relevance - best))
        for answer in passage.answers:
            own = spaced_words(answer.text)
            names_nothing_new = content_stems(answer.text) <= reading.stems
            if not names_nothing_new and own.strip() and (own in clause_words or clause_words in own):
                span = max(span, weight * answer.certainty)
    agreed = reading.agreement(clause)
    is_negated = bool(NEGATION.search(clause))
    of_part = claims_part(reading.question, reading.form, plain, text)
    return {
        "checker": verdict.score,
        "refuted": verdict.refutation or 0.0,
        "found": math.log1p(len(new & stems_there)),
        "missing": math.log1p(len(new - stems_there)),
        "own words": len(new & stems_there) / len(new) if new else 0.0,
        "question's words": len(reading.stems & stems_there) / len(reading.stems) if reading.stems else 1.0,
        "repeats": float(not new and not named),
        "lacking": float(any(not any(holds(t, name) for t in reading.texts) for name in named)),
        "outside": float(any(not holds(text, name) for name in named)),
        "away": float(any(not holds(window.text, name) for name in named)),
        "span": span,
        "agreed": agreed,
        "agreed and sure": agreed * reading.probability,
        "disagreed and sure": (1 - agreed) * reading.probability,
        "evidence": max(-MAX_LOG_ODDS, min(MAX_LOG_ODDS, window.evidence)),
        "relevance": max(-MAX_LOG_ODDS, min(MAX_LOG_ODDS, reading.readings[window.passage].relevance)),
        "misfit": float(not fits_form(reading, plain)),
        "negation": float(reading.form != "yes/no" and is_negated != bool(NEGATION.search(window.text))),
        "of another": float(
            of_part is False
            or counts_otherwise(reading, plain, text)
            or speaks_of_another(reading, plain)
            or is_under_other_label(reading, plain)
        ),
        "of the part": float(of_part is True),
    }


def clause_parts(
    reading: Reading, sentences: Sequence[MarkedSentence]
) -> list[tuple[MarkedSentence, str, Window]]:
    """Return the clauses of each sentence that claims something, each with the window that has most of its words."""
    parts = []
    for number, sentence in enumerate(dict.fromkeys(sentences[:MAX_SENTENCES])):
        plain = LIST_MARK.sub("", sentence.text).strip("`*_# ")
        leads_up = plain.endswith(":") and number + 1 < len(sentences)
        if not words(plain) or leads_up:
            continue
        own = clauses(plain)
        # A clause that only repeats the question adds nothing to one that says more.
        telling = [clause for clause in own if content_stems(clause) - reading.stems]
        for clause in telling or own:
            window = best_window(reading, clause, sentence.marks)
            if window is not None:
                parts.append((sentence, clause, window))
    return parts
