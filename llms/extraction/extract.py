"""Answer extraction from passages, with a calibrated probability. Every answer is a quotation."""

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from kcard import cache as kcard_cache
from kcard.embedded import minilm
from kcard.embedded import static_embeddings as static
from kcard.embedded.question_forms import (
    SENTENCES,
    Form,
    asks_for_words,
    content_stems,
    fits,
    form_of,
    meaning_stems,
    share_of,
)
from kcard.embedded.reader import READER_WEIGHTS, AnswerSpan, PassageReading, Sentence, read_all
from kcard.llms.extraction.clauses import TASK
from kcard.llms.extraction.scope import in_scope
from kcard.llms.extraction.tables import Cell, find_cell
from kcard.llms.extraction.times import includes_year
from kcard.llms.extraction.verdicts import YesNo, decide
from kcard.text import LIST_MARK, numbers, ordinals_as_in

# Answer candidates: the embedded reader's output for each passage, best first.

# Log-odds, fitted on people's questions about ten manuals, with the passages that answer them.
COVERED = 6.0  # for a passage with all of the question's words
HEADED = 1.5  # for the last part of a heading that means the same as the question (static embeddings)
MISSING_NUMBER = 4.0  # per number of the question that a passage lacks
MISFIT = 3.0  # for an answer that is not of the kind the question asks for

STEPS = re.compile(r"\b(?:steps|procedure|instructions)\b", re.IGNORECASE)
NUMBERED = re.compile(r"^\s*\(?\d{1,3}[.)]\s", re.MULTILINE)
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
        behind = tuple(
            replace(sentence, start=max(sentence.start, self.begin))
            for sentence in self.reading.sentences
            if sentence.end > self.begin
        )
        return behind or self.reading.sentences


def split_heading(text: str, heading: str) -> tuple[str, str]:
    """Return the heading that begins a passage, with its colon, and the rest."""
    begin = f"{heading}: " if heading else ""
    return (begin, text.removeprefix(begin)) if text.startswith(begin) else ("", text)


def rank_candidates(
    question: str,
    form: Form,
    passages: Sequence[str],
    readings: Sequence[PassageReading],
    headings: Sequence[str] = (),
) -> list[AnswerCandidate]:
    """Rank the passages that have text, best first."""

    def likelihood(words: AnswerSpan) -> float:
        return math.log(max(words.certainty, 1e-9)) - (0.0 if fits(form, words.text) else MISFIT)

    question_numbers = numbers(question)
    ranked = []
    for at, (text, reading) in enumerate(zip(passages, readings, strict=True)):
        heading, _ = split_heading(text, headings[at] if at < len(headings) else "")
        if reading.sentences:
            answer = max(reading.answers, key=likelihood, default=None)
            lacking = [
                number for number in question_numbers - numbers(text) if not includes_year(text, number)
            ]
            score = reading.relevance - MISSING_NUMBER * len(lacking)
            score -= 0.0 if answer and fits(form, answer.text) else MISFIT
            score += COVERED * token_share(question, with_kind(question, text))
            if at < len(headings) and headings[at]:
                question_vector, heading_vector = static.embed([question, headings[at].rpartition(" > ")[2]])
                score += HEADED * float(question_vector @ heading_vector)
            ranked.append(AnswerCandidate(at, text, reading, answer, score, len(heading)))
    return sorted(ranked, key=lambda candidate: -candidate.score)


def with_kind(question: str, text: str) -> str:
    """Return a text that has numbered items with the question's word for them, such as "steps", which it may lack."""
    kind = STEPS.search(question)
    if kind is None or len(NUMBERED.findall(text)) < MIN_STEPS:
        return text
    return f"{text} {kind[0]}"


def token_share(question: str, text: str) -> float:
    """Return the share of the question's tokens in the text, in [0, 1]; rare ones weigh more."""
    tokens = sorted(set(minilm.words().ids([question])[0]))
    if not tokens:
        return 0.0
    weights = static.token_weights(tokens)
    return float(weights[np.isin(tokens, minilm.words().ids([text])[0])].sum() / max(weights.sum(), 1e-9))


# Confidence in an extracted answer: a logistic regression fitted on people's questions about manuals, some of which the
# manual does not answer (recipes/reader/calibrate.py).


MAX_LEAD = 5.0
DECIDED, UNDECIDED = 2.0, 0.5  # for a verdict of yes or no, and a quotation instead


def confidence_features(
    question: str, form: Form, best: AnswerCandidate, lead: float, grounds: str, near: float, *, decided: bool
) -> dict[str, float]:
    """Compute confidence features of an answer from the `best` candidate, which scores `lead` more than the next one.
    `grounds`: its supporting sentences; `near`: see nearness; `decided`: whether it is a verdict of yes or no."""
    question_stems = content_stems(question)
    in_words = best.answer is not None and form not in (*SENTENCES, "yes/no")
    polarity = 0.0
    if form == "yes/no":
        polarity = DECIDED if decided else UNDECIDED
    return {
        "bias": 1.0,
        "relevance": max(-8.0, min(8.0, best.score)),
        "lead": min(MAX_LEAD, lead),
        "certainty": best.answer.certainty if best.answer and in_words else 0.0,
        "covered by passage": share_of(question_stems, with_kind(question, best.text), 1.0),
        "covered by grounds": share_of(question_stems, with_kind(question, grounds), 1.0),
        "near": near,
        "sentences": float(form in SENTENCES),
        "yes/no": float(form == "yes/no"),
        "polarity": polarity,
    }


def probability(values: Mapping[str, float]) -> float:
    """Return the probability that the answer with these features is right, in (0, 1)."""
    weights = calibration_weights()
    odds = sum(weights.get(name, 0.0) * value for name, value in values.items())
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, odds))))


def nearness(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return the cosine of each question and its answer's supporting sentences (sentence encoder)."""
    vectors = kcard_cache.embed([text for pair in pairs for text in pair])
    return [float(asked @ grounds) for asked, grounds in zip(vectors[::2], vectors[1::2], strict=True)]


@cache
def calibration_weights() -> Mapping[str, float]:
    calibration: dict[str, float] = json.loads(
        (READER_WEIGHTS / "calibration.json").read_text(encoding="utf-8")
    )
    return calibration


# Supporting sentences of an answer, and the quotation made of them.

MOST = 3  # sentences from anywhere; more if neighbours belong to the best
ENOUGH_WORDS = 25  # of one passage, to which nothing from anywhere else is added
MAX_QUOTE_WORDS = 90
MAX_LIST_WORDS = 150
WORTH = 3.0  # support above -WORTH makes a sentence part of the quotation around the best one
NEAR = 1.5  # maximum gap in support between the best sentence and neighbours that belong to it
APART = 3.0  # the same in log-probability, for sentences anywhere
SHARED, ANSWERING = 2.0, 2.0  # support for all words of the question, and for an answer span of certainty 1
SHARPNESS = 1 / 0.7  # inverse temperature of the softmax over support
LEANING = re.compile(r"(?:It|Its|This|That|These|Those|They|Their|He|She|His|Her|Such|Both)\b")
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


def score_sentences(question: str, candidates: Sequence[AnswerCandidate]) -> list[list[float]]:
    """Score how likely the answer rests on each sentence of each candidate, from the network's evidence, the question's
    words in it, and the answer span. Roughly log-odds."""
    question_stems = content_stems(question)
    supports = []
    for candidate in candidates:
        text, words = candidate.text, candidate.answer
        support = []
        for sentence in candidate.sentences:
            holds = words is not None and sentence.start <= words.start < sentence.end
            support.append(
                sentence.evidence
                + SHARED * share_of(question_stems, text[sentence.start : sentence.end])
                + ANSWERING * (words.certainty if words and holds else 0.0)
            )
        supports.append(support)
    return supports


def quote_sentences(
    candidates: Sequence[AnswerCandidate], supports: Sequence[Sequence[float]], *, whole_passage: bool
) -> SentenceQuote:
    """Quote the likeliest sentence with the neighbours that belong to it, then the likeliest others.

    whole_passage  whether the answer may be all that the passage says about it, such as steps or reasons, rather than
                   one sentence
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
        rows = _find_stretch(candidates[lead], supports[lead], best)
    else:
        rows = _find_neighbours(candidates[lead], supports[lead], best)
    chosen = [(lead, row) for row in rows]
    words = sum(_count_words(candidates[lead].text, candidates[lead].sentences[row]) for row in rows)
    if whole_passage and words >= ENOUGH_WORDS:
        order = []
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


def sentence_text(candidate: AnswerCandidate, row: int) -> str:
    """Return one sentence, whitespace collapsed."""
    sentence = candidate.sentences[row]
    return " ".join(candidate.text[sentence.start : sentence.end].split())


def _find_stretch(candidate: AnswerCandidate, support: Sequence[float], best: int) -> list[int]:
    """Return the sentences around the best one, in order, whose support above -WORTH sums to the most, in at most
    MAX_QUOTE_WORDS; of a list all items, in at most MAX_LIST_WORDS."""
    text, sentences = candidate.text, candidate.sentences
    counts = [_count_words(text, sentence) for sentence in sentences]
    most, first, last = -math.inf, best, best
    for start in range(best + 1):
        for end in range(best, len(sentences)):
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
        able = [at for at in sides if support[at] >= support[best] - NEAR]
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
    if first and LEANING.match(text, sentences[first].start):
        first -= 1  # the sentence that the pronoun refers to
    if text[: sentences[last].end].endswith(":") and last + 1 < len(sentences):
        last += 1  # the command or list that the sentence introduces
        while (
            words < MAX_LIST_WORDS
            and last + 1 < len(sentences)
            and _is_same_list(text, sentences, last + 1, first, last)
        ):
            last += 1
            words += _count_words(text, sentences[last])
    return list(range(first, last + 1))


def _is_same_list(text: str, sentences: Sequence[Sentence], at: int, first: int, last: int) -> bool:
    """Return whether a neighbour continues the answer's list: another item, or its lead-in."""
    edge = sentences[first if at < first else last]
    beside = text[sentences[at].start : sentences[at].end]
    inside = text[edge.start : edge.end]
    if at < first:
        return bool(ITEM.match(inside)) and (bool(ITEM.match(beside)) or beside.endswith(":"))
    return bool(ITEM.match(beside)) and (bool(ITEM.match(inside)) or inside.endswith(":"))


def _count_words(text: str, sentence: Sentence) -> int:
    return text.count(" ", sentence.start, sentence.end) + 1


def _format_lines(candidate: AnswerCandidate, rows: Sequence[int]) -> str:
    """Format sentences of a passage in order, preserving its lines; " … " marks omissions."""
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


# Certainty of a span, over all passages that give it, below which sentences answer: of open questions, and of those
# for a name, place, time or number. On questions about seventeen manuals, spans of a certainty below 0.4 were right for
# .20, the sentences for .48.
SURE, UNSURE = 0.5, 0.4
BOLD = re.compile(r"(?<![\w*/])\*\*(\w[^*\n]*)\*\*(?![\w*/])")
YES_OR_NO = re.compile(r"(?:yes|no)\b", re.IGNORECASE)
ASKED_VERB = re.compile(r"\bwhat (?:does|do|did) \w.* (?<!the )(?<!a )(?<!an )(\w+)\W*$", re.IGNORECASE)
CLAUSE_BORDER = re.compile(r"[.!?;:]\s+|\n|,\s+(?:and|but|while|which)\s+|\s+and\s+(?=\w+s\s)", re.IGNORECASE)
LIKELY_STEPS = 0.5  # probability of numbered items that have all words of a question for steps
ABLE = re.compile(
    r"\b(?:can|could|may) (?:i|we|one)\b|\bis (?:it possible|there (?:a|any|some) way)\b", re.IGNORECASE
)


# Probability below which an answer is withheld, and the same for steps, reasons and lists: one sees that a quotation
# does not answer, but not that a name is the wrong one (recipes/reader/calibrate.py, benchmarks/real_documents.py).
ANSWERED, ANSWERED_IN_SENTENCES = 0.36, 0.25


@dataclass(frozen=True)
class Extract:
    """An answer from passages.

    text         the answer
    quote        its main supporting sentence
    passage      the number of the passage that contains the quote
    probability  that the answer is right, in [0, 1]
    words        whether it is a span of words rather than sentences
    threshold    probability below which it is withheld
    """

    text: str
    quote: str
    passage: int
    probability: float
    words: bool = False
    threshold: float = ANSWERED

    @property
    def is_sure(self) -> bool:
        """Return whether it may be given as an answer."""
        return self.probability >= self.threshold


@dataclass(frozen=True)
class _AnswerDraft:
    """An answer without its probability yet, and its supporting sentences. `certainty`: its probability, if known."""

    question: str
    form: Form
    best: AnswerCandidate
    text: str
    grounds: str
    first: str
    passage: int
    words: bool
    lead: float
    decided: bool = False
    certainty: float | None = None

    def features(self, near: float) -> dict[str, float]:
        return confidence_features(
            self.question, self.form, self.best, self.lead, self.grounds, near, decided=self.decided
        )

    def extract(self, values: Mapping[str, float]) -> Extract:
        threshold = ANSWERED_IN_SENTENCES if self.form in SENTENCES else ANSWERED
        likelihood = probability(values) if self.certainty is None else self.certainty
        return Extract(self.text, self.first, self.passage, likelihood, self.words, threshold)


def extract(question: str, passages: Sequence[str]) -> Extract | None:
    """Extract the best answer from passages, which come likeliest first; None if there is no text.

    Passages may begin with their headings.
    """
    return extract_all([(question, passages)])[0]


def extract_all(
    questions: Sequence[tuple[str, Sequence[str]]], headings: Sequence[Sequence[str]] | None = None
) -> list[Extract | None]:
    """Extract answers to several questions, each with its own passages, in one batch.

    `headings`: the heading that begins each passage, "" for none: headings are read, but not quoted.
    """
    return [found[0] if found else None for found in _examine_all(questions, headings)]


def examine(
    question: str, passages: Sequence[str], headings: Sequence[str] = ()
) -> tuple[Extract, dict[str, float]] | None:
    """Extract the best answer with the features behind its probability."""
    return _examine_all([(question, passages)], [headings])[0]


def _examine_all(
    questions: Sequence[tuple[str, Sequence[str]]], headings: Sequence[Sequence[str]] | None = None
) -> list[tuple[Extract, dict[str, float]] | None]:
    forms = [form_of(question) for question, _ in questions]
    over = headings or [()] * len(questions)
    # Cells of tables that are plainly asked for; the reader reads what speaks of the question's subject and time.
    narrowed, cells = [], []
    for (question, passages), form, titles in zip(questions, forms, over, strict=True):
        wording = ordinals_as_in(passages, question)
        parts = [
            split_heading(text, titles[at] if at < len(titles) else "") for at, text in enumerate(passages)
        ]
        cells.append(find_cell(wording, form, parts))
        narrowed.append((wording, [heading + in_scope(wording, form, body) for heading, body in parts]))
    drafts = [
        _draft_answer(question, form, passages, readings, titles, cell)
        for (question, passages), form, readings, titles, cell in zip(
            narrowed, forms, read_all(narrowed), over, cells, strict=True
        )
    ]
    near = iter(nearness([(draft.question, draft.grounds) for draft in drafts if draft]))
    results = []
    for draft in drafts:
        values = draft.features(next(near)) if draft else {}
        results.append((draft.extract(values), values) if draft else None)
    return results


def _draft_answer(
    question: str,
    form: Form,
    passages: Sequence[str],
    readings: Sequence[PassageReading],
    headings: Sequence[str],
    cell: Cell | None,
) -> _AnswerDraft | None:
    ranked = rank_candidates(question, form, passages, readings, headings)
    if not ranked:
        return None
    if cell is not None:
        line, text = cell.row.line, cell.text or cell.row.line
        best = next(candidate for candidate in ranked if candidate.passage == cell.row.passage)
        return _AnswerDraft(
            question,
            form,
            best,
            text,
            line,
            line,
            best.passage,
            words=True,
            lead=0.0,
            certainty=cell.probability,
        )
    supports, best = score_sentences(question, ranked), ranked[0]
    # The only passage leads one that is as likely to answer as not.
    lead = best.score - ranked[1].score if len(ranked) > 1 else max(0.0, best.score)
    words = None if form in (*SENTENCES, "yes/no") else best.answer
    if words is not None and not says_verb(question, best.text, words):
        words = None
    # The sentence in which the span begins; without a span, the likeliest.
    holding = [
        at
        for at, sentence in enumerate(best.sentences)
        if words is not None and sentence.start <= words.start < sentence.end
    ]
    around = holding[0] if holding else int(np.argmax(supports[0]))
    answer_text = ""
    if words is not None:
        # Cut the span at the end of the sentence in which it begins.
        text, end = best.text, best.sentences[around].end
        answer_text = text[words.start : end] if end < words.end and text[end].isspace() else words.text
        # Noisy-or over the passages that give the same words.
        same = (c.answer for c in ranked if c.answer and c.answer.text.lower() == words.text.lower())
        certainty = 1 - math.prod(1 - answer.certainty for answer in same)
        if certainty >= SURE:
            first = sentence_text(best, around)
            return _AnswerDraft(
                question,
                form,
                best,
                answer_text,
                _with_heading(best, first),
                first,
                best.passage,
                words=True,
                lead=lead,
            )
    quote = quote_sentences(ranked, supports, whole_passage=form != "yes/no")
    passage, grounds = ranked[quote.candidate].passage, _with_heading(ranked[quote.candidate], quote.text)
    if words is not None and certainty >= UNSURE and asks_for_words(question, form):
        # Return a name, place, time or number even if unsure; the sentences determine the confidence.
        first = sentence_text(best, around)
        return _AnswerDraft(
            question, form, best, answer_text, grounds, first, best.passage, words=True, lead=lead
        )
    if form == "yes/no":
        verdict = _find_verdict(question, ranked, supports)
        if verdict is not None:
            at, answer_text, first = verdict
            candidate = ranked[at]
            grounds, passage = _with_heading(candidate, first), candidate.passage
            return _AnswerDraft(
                question,
                form,
                candidate,
                answer_text,
                grounds,
                first,
                passage,
                words=False,
                lead=lead,
                decided=True,
            )
    certainty = LIKELY_STEPS if has_asked_steps(question, best.text) and passage == best.passage else None
    return _AnswerDraft(
        question,
        form,
        best,
        _strip_mark(quote.text),
        grounds,
        quote.first,
        passage,
        words=False,
        lead=lead,
        certainty=certainty,
    )


def says_verb(question: str, text: str, words: AnswerSpan) -> bool:
    """Return whether a span stands in the clause of the verb that ends the question: of "What does open_gate return?"
    the one with "returns", not that of a parameter. True for other questions."""
    verb = ASKED_VERB.search(question)
    if verb is None:
        return True
    start, end = words.start, words.start + len(words.text)
    begins = [place.end() for place in CLAUSE_BORDER.finditer(text, 0, start)]
    following = CLAUSE_BORDER.search(text, end)
    clause = text[begins[-1] if begins else 0 : following.start() if following else len(text)]
    return bool(meaning_stems(verb[1]) & meaning_stems(clause))


def has_asked_steps(question: str, text: str) -> bool:
    """Return whether a question asks for steps, and numbered items have all of its other words."""
    is_covered = meaning_stems(question) <= meaning_stems(with_kind(question, text))
    return is_covered and bool(STEPS.search(question)) and len(NUMBERED.findall(text)) >= MIN_STEPS


def _find_verdict(
    question: str, candidates: Sequence[AnswerCandidate], supports: Sequence[Sequence[float]]
) -> tuple[int, str, str] | None:
    """Return (index of the candidate, answer, sentences that it rests on) of a verdict of yes or no; None if none of
    the candidates has one, or if they contradict each other."""
    verdicts: list[tuple[int, YesNo]] = []
    for at, candidate in enumerate(candidates):
        sentences = [sentence_text(candidate, row) for row in range(len(candidate.sentences))]
        verdict = decide(question, sentences, candidate.text[: candidate.begin])
        if verdict is not None:
            verdicts.append((at, verdict))
    if len({verdict.is_yes for _, verdict in verdicts}) != 1:
        return None
    at, verdict = verdicts[0]
    candidate = candidates[at]
    rows = list(range(verdict.first, verdict.last + 1))
    if len(rows) > MOST:
        rows = rows[-1:]
    first = _format_lines(candidate, rows)
    if verdict.is_yes and ABLE.search(question):
        # Who asks whether something can be done also wants to know how.
        rows = _find_stretch(candidate, supports[at], verdict.last)
    text = _strip_mark(_format_lines(candidate, rows))
    if not YES_OR_NO.match(text):
        text = f"{'Yes' if verdict.is_yes else 'No'}: {text}"
    return at, text, first


def _with_heading(candidate: AnswerCandidate, text: str) -> str:
    """Prepend the heading to a quotation that begins its passage, as in fitting the confidence."""
    heading, body = candidate.text[: candidate.begin], " ".join(candidate.text[candidate.begin :].split())
    opening = " ".join(text.partition(" … ")[0].partition("\n")[0].split())
    return heading + text if body.startswith(opening) else text


def _strip_mark(text: str) -> str:
    """Strip the bullet, number or box of a lone list item, and the marks of bold text."""
    plain = BOLD.sub(r"\1", text)
    return plain if "\n" in plain else TASK.sub("", LIST_MARK.sub("", plain))
