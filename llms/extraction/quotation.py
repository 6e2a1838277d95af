"""Passages as answers to a question, ranked, and the sentences of them that are quoted."""

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kcard.embedded import minilm
from kcard.embedded import static_embeddings as static
from kcard.embedded.question_forms import Form, content_stems, counts_nothing, fits, share_of
from kcard.embedded.reader import AnswerSpan, PassageReading, Sentence
from kcard.llms.extraction.times import includes_year
from kcard.text import numbers

# Answer candidates: the embedded reader's output for each passage, best first.

# Log-odds, fitted on people's questions about ten manuals, with the passages that answer them.
COVERAGE_WEIGHT = 6.0  # for a passage with all of the question's words
HEADING_WEIGHT = 1.5  # for the last part of a heading that means the same as the question (static embeddings)
MISSING_NUMBER = 4.0  # per number of the question that a passage lacks
MISFIT_COST = 3.0  # for an answer that is not of the kind the question asks for

STEPS = re.compile(r"\b(?:steps|procedure|instructions)\b", re.IGNORECASE)
NUMBERED_STEP = re.compile(r"^\s*\(?\d{1,3}[.)]\s", re.MULTILINE)
MIN_STEPS = 2


@dataclass(frozen=True)
class AnswerCandidate:
    """A passage as an answer to a question.

    passage  its number
    answer   the answer span, if any
    score    roughly the log-odds that the passage answers
    begin    offset of its text after the heading
    """

    passage: int
    text: str
    reading: PassageReading
    answer: AnswerSpan | None
    score: float
    begin: int = 0

    @functools.cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """Sentences of the passage without its heading; of the heading if there is nothing else."""
        behind = []
        for sentence in self.reading.sentences:
            if sentence.end > self.begin:
                behind.append(replace(sentence, start=max(sentence.start, self.begin)))
        return tuple(behind) or self.reading.sentences


def split_heading(text: str, heading: str) -> tuple[str, str]:
    """Return the heading that begins a passage, with its colon, and the rest."""
    begin = f"{heading}: "
    if not heading or not text.startswith(begin):
        return "", text
    return begin, text.removeprefix(begin)


def rank_candidates(
    question: str,
    form: Form,
    passages: Sequence[str],
    readings: Sequence[PassageReading],
    headings: Sequence[str] = (),
) -> list[AnswerCandidate]:
    """Rank the passages that have text, best first."""

    def log_likelihood(words: AnswerSpan) -> float:
        likelihood = math.log(max(words.certainty, 1e-9))
        if not fits(form, words.text) or counts_nothing(
            question, text, words.start, words.start + len(words.text)
        ):
            likelihood -= MISFIT_COST
        return likelihood

    question_numbers = numbers(question)
    ranked = []
    for at, (text, reading) in enumerate(zip(passages, readings, strict=True)):
        if not reading.sentences:
            continue
        answer = max(reading.answers, key=log_likelihood, default=None)
        missing = question_numbers - numbers(text)
        lacking = [number for number in missing if not includes_year(text, number)]
        score = reading.relevance - MISSING_NUMBER * len(lacking)
        if answer is None or not fits(form, answer.text):
            score -= MISFIT_COST
        score += COVERAGE_WEIGHT * token_share(question, with_kind(question, text))
        heading = ""
        if at < len(headings) and headings[at]:
            heading, _ = split_heading(text, headings[at])
            question_vector, heading_vector = static.embed([question, headings[at].rpartition(" > ")[2]])
            score += HEADING_WEIGHT * float(question_vector @ heading_vector)
        ranked.append(AnswerCandidate(at, text, reading, answer, score, len(heading)))
    return sorted(ranked, key=lambda candidate: -candidate.score)


def with_kind(question: str, text: str) -> str:
    """Return a text that has numbered items with the question's word for them, such as "steps", which it may lack."""
    kind = STEPS.search(question)
    if kind is None or len(NUMBERED_STEP.findall(text)) < MIN_STEPS:
        return text
    return f"{text} {kind[0]}"


def token_share(question: str, text: str) -> float:
    """Return the share of the question's tokens in the text, in [0, 1]; rare ones weigh more."""
    tokens = sorted(set(minilm.words().ids([question])[0]))
    if not tokens:
        return 0.0
    weights = static.token_weights(tokens)
    return float(weights[np.isin(tokens, minilm.words().ids([text])[0])].sum() / max(weights.sum(), 1e-9))


# Supporting sentences of an answer, and the quotation made of them.

MAX_QUOTED_SENTENCES = 3  # sentences from anywhere; more if neighbours belong to the best
ENOUGH_WORDS = 25  # of one passage, to which nothing from anywhere else is added
MAX_QUOTE_WORDS = 90
MAX_LIST_WORDS = 150
WORTH = 3.0  # support above -WORTH makes a sentence part of the quotation around the best one
MAX_SUPPORT_GAP = 1.5  # between the best sentence and neighbours that belong to it
MAX_LIKELINESS_GAP = 3.0  # the same in log-probability, for sentences anywhere
SHARED_WORDS_WEIGHT = 2.0  # support for all words of the question
ANSWER_WEIGHT = 2.0  # support for an answer span of certainty 1
SHARPNESS = 1 / 0.7  # inverse temperature of the softmax over support
# Lines of code, which a question for a fact is not answered with where prose answers it.
CODE_LINE = re.compile(
    r"^\s*(?:[$#%>]|>>>|\.\.\.) |^[^.!?]*\w\([^()]*\)\s*$|[{}\\;]\s*$|^\s*[\w.\[\]\"'-]+ *[-+*/]?=(?!=) *\S+"
    r"|^\s*(?:def|class|from|import|return|for|while|if|else|elif|try|except|const|let|var|function|int|public)\b"
    r"[^.!?]*[:;({)]\s*$|^\s*(?:import [\w.]+|from [\w.]+ import .*|return \S+)$"
)
ASKS_FOR_CODE = re.compile(
    r"\b(?:code|commands?|syntax|examples?|snippet|lines?|calls?|write|type|enter|configur\w+|look like|variables?"
    r"|options?|functions?|methods?|parameters?|arguments?|class|library|exceptions?)\b",
    re.IGNORECASE,
)
QUESTION_COST = 4.0  # support of a sentence that asks: what follows it answers
CODE_COST = 4.0  # support of a line of code in an answer that is no procedure
MIN_PROSE_WORDS = 4
LEANING_OPENING = re.compile(r"(?:It|Its|This|That|These|Those|They|Their|He|She|His|Her|Such|Both)\b")
# The line of an option and its explanation: "-k, --keep: Keep the letters."
OPTION_ENTRY = re.compile(r"(?m:^)[ \t]*--?\w[^\n]*?:\s")
ITEM = re.compile(r"\s*(?:[-*•]|\(?\d{1,3}[.)])\s")


@dataclass(frozen=True)
class SentenceQuote:
    """Sentences from passages.

    text       all of them, the likeliest passage first, one line per passage; " … " marks an omission within
               a passage
    candidate  index of the likeliest sentence's candidate
    first      the likeliest sentence and the neighbours that belong to it
    """

    text: str
    candidate: int
    first: str


def score_sentences(question: str, form: Form, candidates: Sequence[AnswerCandidate]) -> list[list[float]]:
    """Score how likely the answer rests on each sentence of each candidate, from the network's evidence, the question's
    words in it, and the answer span. Roughly log-odds."""
    question_stems = content_stems(question)
    asks_for_prose = form not in ("how", "list") and not ASKS_FOR_CODE.search(question)
    supports = []
    for candidate in candidates:
        text, words = candidate.text, candidate.answer
        support = []
        spares_code = not asks_for_prose or not any(
            is_prose(text[sentence.start : sentence.end]) for sentence in candidate.sentences
        )
        for sentence in candidate.sentences:
            score = sentence.evidence
            score += SHARED_WORDS_WEIGHT * share_of(question_stems, text[sentence.start : sentence.end])
            if words is not None and sentence.start <= words.start < sentence.end:
                score += ANSWER_WEIGHT * words.certainty
            if not spares_code and CODE_LINE.search(text[sentence.start : sentence.end]):
                score -= CODE_COST
            if text[: sentence.end].rstrip().endswith("?"):
                score -= QUESTION_COST
            support.append(score)
        supports.append(support)
    return supports


def is_prose(sentence: str) -> bool:
    return (
        sentence.rstrip().endswith((".", "!", "?"))
        and sentence.count(" ") >= MIN_PROSE_WORDS
        and not CODE_LINE.search(sentence)
    )


def quote_sentences(
    candidates: Sequence[AnswerCandidate],
    supports: Sequence[Sequence[float]],
    *,
    whole_passage: bool,
    cuts_entries: bool,
) -> SentenceQuote:
    """Quote the likeliest sentence with the neighbours that belong to it, then the likeliest others.

    whole_passage  whether the answer may be all that the passage says about it, such as steps or reasons, rather than
                   one sentence
    cuts_entries   whether the explanation of an option is quoted without those beside it
    """
    # (log-probability that the answer rests on a sentence, but for a constant; its candidate; its number)
    order: list[tuple[float, int, int]] = []
    for at, (candidate, support) in enumerate(zip(candidates, supports, strict=True)):
        sharp = np.array(support) * SHARPNESS
        for row, value in enumerate(sharp - np.logaddexp.reduce(sharp)):
            order.append((candidate.score + float(value), at, row))
    order.sort(reverse=True)
    most, lead, best = order[0]
    if whole_passage:
        # All of the answer stands in the best passage, around its likeliest sentence.
        lead = 0
        best = int(np.argmax(supports[lead]))
        rows = find_stretch(candidates[lead], supports[lead], best, cuts_entries=cuts_entries)
    else:
        rows = _find_neighbours(candidates[lead], supports[lead], best)
    chosen = [(lead, row) for row in rows]
    words = sum(_count_words(candidates[lead].text, candidates[lead].sentences[row]) for row in rows)
    if whole_passage and words >= ENOUGH_WORDS:
        order = []
    for likeliness, at, row in order[1:]:
        if len(chosen) >= MAX_QUOTED_SENTENCES or likeliness < most - MAX_LIKELINESS_GAP:
            break
        if (at, row) not in chosen:
            text, sentences = candidates[at].text, candidates[at].sentences
            chosen.append((at, row))
            is_lead_in = row + 1 < len(sentences) and text[: sentences[row].end].endswith(":")
            if is_lead_in and (at, row + 1) not in chosen:
                chosen.append((at, row + 1))
    rows_of_candidate: dict[int, list[int]] = {}
    for at, row in chosen:
        rows_of_candidate.setdefault(at, []).append(row)
    parts = [format_lines(candidates[at], sorted(of_it)) for at, of_it in rows_of_candidate.items()]
    return SentenceQuote("\n".join(parts), lead, format_lines(candidates[lead], rows))


def sentence_text(candidate: AnswerCandidate, row: int) -> str:
    """Return one sentence, whitespace collapsed."""
    sentence = candidate.sentences[row]
    return " ".join(candidate.text[sentence.start : sentence.end].split())


def find_stretch(
    candidate: AnswerCandidate, support: Sequence[float], best: int, *, cuts_entries: bool
) -> list[int]:
    """Return the sentences around the best one, in order, whose support above -WORTH sums to the most, in at most
    MAX_QUOTE_WORDS; of a list all items, in at most MAX_LIST_WORDS."""
    text, sentences = candidate.text, candidate.sentences
    counts = [_count_words(text, sentence) for sentence in sentences]
    earliest, latest = 0, len(sentences)
    if cuts_entries:
        # Options that are explained, each on a line of its own.
        begins = [bool(OPTION_ENTRY.match(text, sentence.start)) for sentence in sentences]
        earliest = max((at for at in range(best + 1) if begins[at]), default=0)
        latest = min((at for at in range(best + 1, len(sentences)) if begins[at]), default=len(sentences))
    most, first, last = -math.inf, best, best
    for start in range(earliest, best + 1):
        for end in range(best, latest):
            if end > start and sum(counts[start : end + 1]) > MAX_QUOTE_WORDS:
                break
            worth = sum(value + WORTH for value in support[start : end + 1])
            if worth > most:
                most, first, last = worth, start, end
    # The rest of a list.
    words = sum(counts[first : last + 1])
    while first and _is_same_list(text, sentences, first - 1, first, last):
        if words + counts[first - 1] > MAX_LIST_WORDS:
            break
        first -= 1
        words += counts[first]
    while last + 1 < len(sentences) and _is_same_list(text, sentences, last + 1, first, last):
        if words + counts[last + 1] > MAX_LIST_WORDS:
            break
        last += 1
        words += counts[last]
    return _with_context(candidate, first, last)


def _find_neighbours(candidate: AnswerCandidate, support: Sequence[float], best: int) -> list[int]:
    """Return the best sentence and neighbours that belong to it, in order."""
    text, sentences = candidate.text, candidate.sentences
    first = last = best
    words = _count_words(text, sentences[best])
    while words < MAX_QUOTE_WORDS:
        sides = [at for at in (first - 1, last + 1) if 0 <= at < len(sentences)]
        able = [at for at in sides if support[at] >= support[best] - MAX_SUPPORT_GAP]
        if not able:
            break
        at = max(able, key=lambda at: support[at])
        words += _count_words(text, sentences[at])
        first, last = min(first, at), max(last, at)
    return _with_context(candidate, first, last)


def _with_context(candidate: AnswerCandidate, first: int, last: int) -> list[int]:
    """Return the sentences from the first to the last one, with what the first refers to and the last introduces."""
    text, sentences = candidate.text, candidate.sentences
    words = sum(_count_words(text, sentence) for sentence in sentences[first : last + 1])
    if first and LEANING_OPENING.match(text, sentences[first].start):
        first -= 1  # the sentence that the pronoun refers to
    if text[: sentences[last].end].endswith(":") and last + 1 < len(sentences):
        last += 1  # the command or list that the sentence introduces
        while words < MAX_LIST_WORDS and last + 1 < len(sentences):
            if not _is_same_list(text, sentences, last + 1, first, last):
                break
            last += 1
            words += _count_words(text, sentences[last])
    return list(range(first, last + 1))


def _is_same_list(text: str, sentences: Sequence[Sentence], at: int, first: int, last: int) -> bool:
    """Return whether a neighbour continues the answer's list: another item, or its lead-in."""
    edge = sentences[last]
    if at < first:
        edge = sentences[first]
    beside = text[sentences[at].start : sentences[at].end]
    inside = text[edge.start : edge.end]
    if at < first:
        return bool(ITEM.match(inside)) and (bool(ITEM.match(beside)) or beside.endswith(":"))
    return bool(ITEM.match(beside)) and (bool(ITEM.match(inside)) or inside.endswith(":"))


def _count_words(text: str, sentence: Sentence) -> int:
    return text.count(" ", sentence.start, sentence.end) + 1


def format_lines(candidate: AnswerCandidate, rows: Sequence[int]) -> str:
    """Format sentences of a passage in order, preserving its lines; " … " marks omissions."""
    text, sentences = candidate.text, candidate.sentences
    parts: list[str] = []
    for row in rows:
        end = sentences[row].end
        if row - 1 in rows:
            parts[-1] += text[sentences[row - 1].end : end]
        else:
            parts.append(text[sentences[row].start : end])
    return " … ".join(map(collapse_lines, parts))


def collapse_lines(text: str) -> str:
    """Return the text without blank lines, and one blank between the words of each line."""
    lines = [" ".join(line.split()) for line in text.split("\n") if line.strip()]
    return "\n".join(lines)
