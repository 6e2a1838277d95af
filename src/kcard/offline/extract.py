"""Extract an answer from passages, with a calibrated probability. Every answer is a quotation."""

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from kcard import cache as kcard_cache
from kcard.offline.questions import SENTENCES, Form, asks_for_words, fits, form_of
from kcard.offline.reader import READER_WEIGHTS, AnswerSpan, PassageReading, Sentence, read_all
from kcard.text import analyzer, numbers, ordinals_as_in

__all__ = [
    "DECIDED",
    "STEMS",
    "AnswerCandidate",
    "Extract",
    "SentenceQuote",
    "asked_about",
    "candidates",
    "coverage",
    "examine",
    "extract",
    "extract_all",
    "features",
    "joined",
    "nearness",
    "polarity",
    "probability",
    "quoted",
    "supports_of",
]


# What the embedded reader says of each passage for a question, the likeliest passage first.

MISSING_NUMBER = 4.0  # log-odds for each number of the question that a passage lacks
LATER = 0.7  # log-odds for each passage that stands before, of the first FEW
FEW = 3
MISFIT = 3.0  # log-odds for words that are not of the kind that the question asks for
WORD = re.compile(r"\w[\w.+/-]*\w|\w")
STEMS = analyzer("english")
_ASKING = """
a an the of in on at to for from by with and or is are was were be been do does did can could will would should has have
had may might must i my me we our you your it its this that these those there what which who whom whose when where why
how many much long often if not no as so than then
"""
ASKING = frozenset(_ASKING.split())


@dataclass(frozen=True)
class AnswerCandidate:
    """A passage and its number, what the reader says of it, the words of it that answer, if any, and its score, which
    is log-odds of a kind. `begin`: where its text begins, behind its heading."""

    passage: int
    text: str
    reading: PassageReading
    answer: AnswerSpan | None
    score: float
    begin: int = 0

    @functools.cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """Those of the passage, without its heading; the heading's, where there is no more."""
        behind = tuple(
            replace(sentence, start=max(sentence.start, self.begin))
            for sentence in self.reading.sentences
            if sentence.end > self.begin
        )
        return behind or self.reading.sentences


def candidates(
    question: str,
    form: Form,
    passages: Sequence[str],
    readings: Sequence[PassageReading],
    headings: Sequence[str] = (),
) -> list[AnswerCandidate]:
    """The passages that have text, the best first; they come the likeliest first, by whoever found them."""

    def likelihood(words: AnswerSpan) -> float:
        return math.log(max(words.certainty, 1e-9)) - (0.0 if fits(form, words.text) else MISFIT)

    question_numbers = numbers(question)
    ranked = []
    for at, (text, reading) in enumerate(zip(passages, readings, strict=True)):
        heading = f"{headings[at]}: " if at < len(headings) and headings[at] else ""
        if reading.sentences:
            answer = max(reading.answers, key=likelihood, default=None)
            score = reading.relevance - MISSING_NUMBER * len(question_numbers - numbers(text))
            score -= 0.0 if answer and fits(form, answer.text) else MISFIT
            begin = len(heading) if text.startswith(heading) else 0
            ranked.append(AnswerCandidate(at, text, reading, answer, score - LATER * min(at, FEW), begin))
    return sorted(ranked, key=lambda candidate: -candidate.score)


def asked_about(question: str) -> set[str]:
    """Return the stems of the content words of a question."""
    telling = (word for word in WORD.findall(question) if word.lower() not in ASKING)
    return {stem for word in telling for stem in STEMS(word)}


def coverage(question: str, text: str) -> float:
    """The share of the words that a question is about which a text has, by their stems; 0 where it is about none."""
    question_stems = asked_about(question)
    return len(question_stems & set(STEMS(text))) / len(question_stems) if question_stems else 0.0


# Whether sentences that answer a question of yes or no say yes.
#
# A logistic regression on words of negation and permission in the two, and on the question's words that the sentences
# repeat. Given the right sentences of 1,103 questions about manuals it is sure of .82, and right about .75 of these
# (cross-validated over manuals; docs/log.md). The reader's own output was at chance there.

DECIDED = math.log(0.63 / 0.37)  # log-odds below which neither is said

# "any price or no price" and "whether or not" deny nothing.
NEGATION = re.compile(
    r"(?<!\bor )\b(?:not|never|no|cannot|nor|neither|none|nothing|nobody)\b|n['’]t\b", re.IGNORECASE
)
ONLY = re.compile(r"\bonly\b", re.IGNORECASE)
PERMISSION = re.compile(
    r"\b(?:can|may|possible|allows?|supports?|able|also|either|both|automatically|optional\w*|even|any|yes"
    r"|recommended|fine|ok|okay|welcome|free to|go ahead|permit\w*|legal|works?)\b",
    re.IGNORECASE,
)
ADVERB = re.compile(
    r"\b(?:ever|really|still|actually|already|just|simply|then)\b", re.IGNORECASE
)  # asks for nothing
LIMIT = re.compile(r"\b(?:without|only|instead)\b", re.IGNORECASE)

BIAS = 0.2
NEGATED, LIMITED, PERMITTED = -1.45, -1.27, 0.55  # log-odds of yes for such words in the sentences
REPEATED = 0.63  # for all of the question's words in sentences that deny nothing
ASKED_NEGATED, ASKED_LIMITED = 0.55, 1.41  # for such words in the question
BOTH_NEGATED = 0.73  # for negation in both


def polarity(question: str, sentences: str) -> float:
    """Log-odds that the answer is yes, if these sentences answer the question."""
    is_negated, is_question_negated = bool(NEGATION.search(sentences)), bool(NEGATION.search(question))
    return (
        BIAS
        + NEGATED * is_negated
        + LIMITED * bool(ONLY.search(sentences))
        + PERMITTED * bool(PERMISSION.search(sentences))
        + REPEATED * (0.0 if is_negated else coverage(ADVERB.sub("", question), sentences))
        + ASKED_NEGATED * is_question_negated
        + ASKED_LIMITED * bool(LIMIT.search(question))
        + BOTH_NEGATED * (is_negated and is_question_negated)
    )


# How sure an answer out of passages is: a logistic regression that was fitted on people's questions about manuals, a
# part of them without an answer there (recipes/reader/calibrate.py).


def features(
    question: str, form: Form, best: AnswerCandidate, grounds: str, first: str, near: float
) -> dict[str, float]:
    """What tells whether an answer is right that comes from the best candidate first and rests on these sentences, the
    likeliest of which is `first`. `near`: see nearness."""
    question_stems = asked_about(question)
    in_words = best.answer is not None and form not in (*SENTENCES, "yes/no")
    return {
        "bias": 1.0,
        "relevance": max(-8.0, min(8.0, best.score)),
        "certainty": best.answer.certainty if best.answer and in_words else 0.0,
        "covered by passage": _share_of_words(question_stems, best.text),
        "covered by grounds": _share_of_words(question_stems, grounds),
        "near": near,
        "sentences": float(form in SENTENCES),
        "yes/no": float(form == "yes/no"),
        "polarity": abs(polarity(question, first)) if form == "yes/no" else 0.0,
    }


def probability(values: Mapping[str, float]) -> float:
    """Return the probability that the answer with these features is right, in (0, 1)."""
    weights = calibration_weights()
    odds = sum(weights.get(name, 0.0) * value for name, value in values.items())
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, odds))))


def _share_of_words(question_stems: Set[str], text: str) -> float:
    """The share of the question's words that a text has."""
    return len(question_stems & set(STEMS(text))) / len(question_stems) if question_stems else 1.0


def nearness(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The cosine of each question and the sentences that its answer rests on, by the sentence encoder."""
    vectors = kcard_cache.embed([text for pair in pairs for text in pair])
    return [float(asked @ grounds) for asked, grounds in zip(vectors[::2], vectors[1::2], strict=True)]


@cache
def calibration_weights() -> Mapping[str, float]:
    """Of the regression, by feature."""
    calibration: dict[str, float] = json.loads(
        (READER_WEIGHTS / "calibration.json").read_text(encoding="utf-8")
    )
    return calibration


# Which sentences of the passages an answer rests on, and the quotation that is made of them.

MOST = 3  # sentences, wherever they stand; more where neighbours belong to the best
LONGEST = 120  # words
NEAR = 1.5  # neighbours whose support falls behind the best by more do not belong to it
APART = 3.0  # the same of the log-probability of sentences anywhere
SHARED, ANSWERING = 2.0, 2.0  # support of all words of the question, and of the words that answer for certain
SHARPNESS = 1 / 0.7  # of the probability of sentences in their support
LEANING = re.compile(r"(?:It|Its|This|That|These|Those|They|Their|He|She|His|Her|Such|Both)\b")
ITEM = re.compile(r"\s*(?:[-*•]|\(?\d{1,3}[.)])\s")


@dataclass(frozen=True)
class SentenceQuote:
    """Sentences out of passages.

    text       all of them, those of the likeliest passage first, a new line for each passage; " … " where something of
               a passage is left out
    candidate  where among the candidates the likeliest stands
    first      the likeliest, and those beside it that belong to it
    """

    text: str
    candidate: int
    first: str


def supports_of(question: str, candidates: Sequence[AnswerCandidate]) -> list[list[float]]:
    """How likely the answer rests on each sentence of each candidate: what the network says of it, the question's words
    in it, and the words that may answer. Log-odds of a kind."""
    question_stems = asked_about(question)
    supports = []
    for candidate in candidates:
        text, words = candidate.text, candidate.answer
        support = []
        for sentence in candidate.sentences:
            stems = set(STEMS(text[sentence.start : sentence.end]))
            holds = words is not None and sentence.start <= words.start < sentence.end
            support.append(
                sentence.evidence
                + SHARED * (len(question_stems & stems) / len(question_stems) if question_stems else 0.0)
                + ANSWERING * (words.certainty if words and holds else 0.0)
            )
        supports.append(support)
    return supports


def quoted(
    candidates: Sequence[AnswerCandidate], supports: Sequence[Sequence[float]], *, whole_list: bool
) -> SentenceQuote:
    """The likeliest sentence of all with those beside it that the answer rests on too, of a list all items and what
    leads to it; then the likeliest of the others."""
    # (log-probability that the answer rests on a sentence, but for a constant; its candidate; its number)
    order: list[tuple[float, int, int]] = []
    for at, (candidate, support) in enumerate(zip(candidates, supports, strict=True)):
        sharp = np.array(support) * SHARPNESS
        for row, value in enumerate(sharp - np.logaddexp.reduce(sharp)):
            order.append((candidate.score + float(value), at, row))
    order.sort(reverse=True)
    most, lead, best = order[0]
    rows = _find_neighbours(candidates[lead], supports[lead], best, whole_list=whole_list)
    chosen = [(lead, row) for row in rows]
    for likeliness, at, row in order[1:]:
        if len(chosen) >= MOST or likeliness < most - APART:
            break
        if (at, row) not in chosen:
            text, sentences = candidates[at].text, candidates[at].sentences
            led = row + 1 < len(sentences) and text[: sentences[row].end].endswith(":")
            chosen += [(at, row), *([(at, row + 1)] if led and (at, row + 1) not in chosen else [])]
    parts = [
        _format_lines(candidates[at], sorted(row for other, row in chosen if other == at))
        for at in dict.fromkeys(at for at, _ in chosen)
    ]
    return SentenceQuote("\n".join(parts), lead, _format_lines(candidates[lead], rows))


def joined(candidate: AnswerCandidate, row: int) -> str:
    """Return one sentence with single blanks."""
    sentence = candidate.sentences[row]
    return " ".join(candidate.text[sentence.start : sentence.end].split())


def _find_neighbours(
    candidate: AnswerCandidate, support: Sequence[float], best: int, *, whole_list: bool
) -> list[int]:
    """The best sentence and those beside it that belong to it, in order."""
    text, sentences = candidate.text, candidate.sentences
    first = last = best
    words = _count_words(text, sentences[best])
    while words < LONGEST:
        sides = [at for at in (first - 1, last + 1) if 0 <= at < len(sentences)]
        able = [
            at
            for at in sides
            if support[at] >= support[best] - NEAR
            or (whole_list and _is_same_list(text, sentences, at, first, last))
        ]
        if not able:
            break
        at = max(able, key=lambda at: support[at])
        words += _count_words(text, sentences[at])
        first, last = min(first, at), max(last, at)
    if first and LEANING.match(text, sentences[first].start):
        first -= 1  # what the sentence speaks of
    if text[: sentences[last].end].endswith(":") and last + 1 < len(sentences):
        last += 1  # the command or the list that the sentence leads to
        while (
            words < LONGEST
            and last + 1 < len(sentences)
            and _is_same_list(text, sentences, last + 1, first, last)
        ):
            last += 1
            words += _count_words(text, sentences[last])
    return list(range(first, last + 1))


def _is_same_list(text: str, sentences: Sequence[Sentence], at: int, first: int, last: int) -> bool:
    """Whether a neighbour belongs to the list that the answer has begun: another item, or what introduces them."""
    edge = sentences[first if at < first else last]
    beside = text[sentences[at].start : sentences[at].end]
    inside = text[edge.start : edge.end]
    if at < first:
        return bool(ITEM.match(inside)) and (bool(ITEM.match(beside)) or beside.endswith(":"))
    return bool(ITEM.match(beside)) and (bool(ITEM.match(inside)) or inside.endswith(":"))


def _count_words(text: str, sentence: Sentence) -> int:
    return text.count(" ", sentence.start, sentence.end) + 1


def _format_lines(candidate: AnswerCandidate, rows: Sequence[int]) -> str:
    """Sentences of a passage in their order, each line of the passage a line; where some are left out stands …"""
    text, sentences = candidate.text, candidate.sentences
    parts: list[str] = []
    for row in rows:
        end = sentences[row].end
        if row - 1 in rows:
            parts[-1] += text[sentences[row - 1].end : end]
        else:
            parts.append(text[sentences[row].start : end])
    lines = ("\n".join(" ".join(line.split()) for line in part.split("\n") if line.strip()) for part in parts)
    return " … ".join(lines)


MARK = re.compile(r"^[-*•]\s+")
SURE = 0.5  # certainty of words, over all passages that give them, below which sentences answer "what"


@dataclass(frozen=True)
class Extract:
    """An answer out of passages.

    text         what is said
    quote        the sentence that it rests on most
    passage      the number of the passage that this stands in
    probability  that the answer is right, in [0, 1]
    words        whether it is words alone, no quotation
    """

    text: str
    quote: str
    passage: int
    probability: float
    words: bool = False


@dataclass(frozen=True)
class _AnswerDraft:
    """An answer whose probability is not known yet, and the sentences that it rests on."""

    question: str
    form: Form
    best: AnswerCandidate
    text: str
    grounds: str
    first: str
    passage: int
    words: bool

    def features(self, near: float) -> dict[str, float]:
        return features(self.question, self.form, self.best, self.grounds, self.first, near)

    def extract(self, values: Mapping[str, float]) -> Extract:
        return Extract(self.text, self.first, self.passage, probability(values), self.words)


def extract(question: str, passages: Sequence[str]) -> Extract | None:
    """The best answer over all passages, which come the likeliest first; None where there is no text.

    Passages may begin with their headings.
    """
    return extract_all([(question, passages)])[0]


def extract_all(
    questions: Sequence[tuple[str, Sequence[str]]], headings: Sequence[Sequence[str]] | None = None
) -> list[Extract | None]:
    """The same of several questions, each with its passages, which are read together.

    `headings`: those that the passages of each question begin with, "" for none: they are read, but not quoted.
    """
    return [found[0] if found else None for found in _examine_all(questions, headings)]


def examine(question: str, passages: Sequence[str]) -> tuple[Extract, dict[str, float]] | None:
    """The same with the features that its probability was computed from."""
    return _examine_all([(question, passages)])[0]


def _examine_all(
    questions: Sequence[tuple[str, Sequence[str]]], headings: Sequence[Sequence[str]] | None = None
) -> list[tuple[Extract, dict[str, float]] | None]:
    questions = [(ordinals_as_in(passages, question), passages) for question, passages in questions]
    drafts = [
        _draft_answer(question, passages, readings, over)
        for (question, passages), readings, over in zip(
            questions, read_all(questions), headings or [()] * len(questions), strict=True
        )
    ]
    near = iter(nearness([(draft.question, draft.grounds) for draft in drafts if draft]))
    results = []
    for draft in drafts:
        values = draft.features(next(near)) if draft else {}
        results.append((draft.extract(values), values) if draft else None)
    return results


def _draft_answer(
    question: str, passages: Sequence[str], readings: Sequence[PassageReading], headings: Sequence[str]
) -> _AnswerDraft | None:
    form = form_of(question)
    ranked = candidates(question, form, passages, readings, headings)
    if not ranked:
        return None
    supports, best = supports_of(question, ranked), ranked[0]
    words = None if form in (*SENTENCES, "yes/no") else best.answer
    # The sentence that the words begin in; without words, the likeliest.
    holding = [
        at
        for at, sentence in enumerate(best.sentences)
        if words is not None and sentence.start <= words.start < sentence.end
    ]
    around = holding[0] if holding else int(np.argmax(supports[0]))
    answer_text = ""
    if words is not None:
        # The words to the end of the sentence that they begin in.
        text, end = best.text, best.sentences[around].end
        answer_text = text[words.start : end] if end < words.end and text[end].isspace() else words.text
        # Of passages that give the same words one is right.
        same = (c.answer for c in ranked if c.answer and c.answer.text.lower() == words.text.lower())
        if 1 - math.prod(1 - answer.certainty for answer in same) >= SURE:
            first = joined(best, around)
            return _AnswerDraft(
                question, form, best, answer_text, _with_heading(best, first), first, best.passage, words=True
            )
    quote = quoted(ranked, supports, whole_list=form in ("how", "list"))
    passage, grounds = ranked[quote.candidate].passage, _with_heading(ranked[quote.candidate], quote.text)
    if words is not None and asks_for_words(question, form):
        # However unsure, a name, a place, a time or a number is named; the sentences tell how sure it is.
        first = joined(best, around)
        return _AnswerDraft(question, form, best, answer_text, grounds, first, best.passage, words=True)
    text = _strip_mark(quote.text)
    if form == "yes/no" and abs(yes := polarity(question, quote.first)) >= DECIDED:
        # The part that tells yes or no; the whole quotation, where none does.
        text = f"{'Yes' if yes > 0 else 'No'}: {_strip_mark(quote.first)}"
    return _AnswerDraft(question, form, best, text, grounds, quote.first, passage, words=False)


def _with_heading(candidate: AnswerCandidate, text: str) -> str:
    """A quotation behind the heading of its passage, where it begins this: confidence was fitted to that."""
    heading, body = candidate.text[: candidate.begin], " ".join(candidate.text[candidate.begin :].split())
    opening = " ".join(text.partition(" … ")[0].partition("\n")[0].split())
    return heading + text if body.startswith(opening) else text


def _strip_mark(text: str) -> str:
    """A lone item of a list without its mark; other text as it is."""
    return text if "\n" in text else MARK.sub("", text)
