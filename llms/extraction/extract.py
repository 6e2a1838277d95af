"""Answer extraction from passages, with a calibrated probability. Every answer is a quotation."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest

import numpy as np

from kcard import cache as kcard_cache
from kcard.embedded.question_forms import (
    SENTENCES,
    Form,
    asks_for_words,
    content_stems,
    counts_nothing,
    fits,
    form_of,
    meaning_stems,
    share_of,
)
from kcard.embedded.reader import READER_WEIGHTS, AnswerSpan, PassageReading, read_all
from kcard.llms.extraction.clauses import TASK, telling_stems
from kcard.llms.extraction.coordination import asked_part, is_office_question, timely_clause
from kcard.llms.extraction.quotation import (
    MAX_QUOTED_SENTENCES,
    MIN_STEPS,
    NUMBERED,
    STEPS,
    AnswerCandidate,
    find_stretch,
    format_lines,
    quote_sentences,
    rank_candidates,
    score_sentences,
    sentence_text,
    split_heading,
    with_kind,
)
from kcard.llms.extraction.scope import in_scope, names_unknown_version
from kcard.llms.extraction.tables import Cell, find_cell
from kcard.llms.extraction.verdicts import YesNo, decide
from kcard.text import LIST_MARK, ordinals_as_in

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
    polarity = certainty = 0.0
    if form == "yes/no" and decided:
        polarity = DECIDED
    elif form == "yes/no":
        polarity = UNDECIDED
    elif best.answer is not None and form not in SENTENCES:
        certainty = best.answer.certainty
    return {
        "bias": 1.0,
        "relevance": max(-8.0, min(8.0, best.score)),
        "lead": min(MAX_LEAD, lead),
        "certainty": certainty,
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
    odds = 0.0
    for name, value in values.items():
        odds += weights.get(name, 0.0) * value
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, odds))))


def nearness(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return the cosine of each question and its answer's supporting sentences (sentence encoder)."""
    texts: list[str] = []
    for pair in pairs:
        texts += pair
    vectors = kcard_cache.embed(texts)
    cosines = []
    for question, grounds in zip(vectors[::2], vectors[1::2], strict=True):
        cosines.append(float(question @ grounds))
    return cosines


@cache
def calibration_weights() -> Mapping[str, float]:
    calibration: dict[str, float] = json.loads(
        (READER_WEIGHTS / "calibration.json").read_text(encoding="utf-8")
    )
    return calibration


# Certainty of a span, over all passages that give it, below which sentences answer: of open questions, and of those
# for a name, place, time or number. On questions about seventeen manuals, spans of a certainty below 0.4 were right for
# .20, the sentences for .48.
MIN_CERTAINTY, MIN_CERTAINTY_OF_NAMES = 0.5, 0.4
MIN_CERTAINTY_OF_PARTS = 0.25  # over all parts of a sentence, of which the question names one
BOLD = re.compile(r"(?<![\w*/])\*\*(\w[^*\n]*)\*\*(?![\w*/])")
YES_OR_NO = re.compile(r"(?:yes|no)\b", re.IGNORECASE)
ASKED_VERB = re.compile(r"\bwhat (?:does|do|did) \w.* (?<!the )(?<!a )(?<!an )(\w+)\W*$", re.IGNORECASE)
CLAUSE_BORDER = re.compile(r"[.!?;:]\s+|\n|,\s+(?:and|but|while|which)\s+|\s+and\s+(?=\w+s\s)", re.IGNORECASE)
HOLDER_PROBABILITY = 0.75  # of the only name that a passage gives for an office
STEPS_PROBABILITY = 0.5  # of numbered items that have all words of a question for steps
ABLE = re.compile(
    r"\b(?:can|could|may) (?:i|we|one)\b|\bis (?:it possible|there (?:a|any|some) way)\b", re.IGNORECASE
)


# Probability below which an answer is withheld, and the same for steps, reasons and lists: one sees that a quotation
# does not answer, but not that a name is the wrong one (recipes/reader/calibrate.py, benchmarks/real_documents.py).
MIN_PROBABILITY, MIN_PROBABILITY_OF_SENTENCES = 0.36, 0.25


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
    threshold: float = MIN_PROBABILITY

    @property
    def is_sure(self) -> bool:
        """Return whether it may be given as an answer."""
        return self.probability >= self.threshold


@dataclass(frozen=True)
class _AnswerDraft:
    """An answer without its probability yet.

    best       the candidate that leads the others by `lead`
    grounds    the supporting sentences, of which `first` is the main one
    certainty  its probability, if known
    """

    question: str
    form: Form
    best: AnswerCandidate
    lead: float
    passage: int
    text: str = ""
    grounds: str = ""
    first: str = ""
    words: bool = False
    decided: bool = False
    certainty: float | None = None

    def features(self, near: float) -> dict[str, float]:
        return confidence_features(
            self.question, self.form, self.best, self.lead, self.grounds, near, decided=self.decided
        )

    def extract(self, values: Mapping[str, float]) -> Extract:
        threshold, likelihood = MIN_PROBABILITY, self.certainty
        if self.form in SENTENCES:
            threshold = MIN_PROBABILITY_OF_SENTENCES
        if likelihood is None:
            likelihood = probability(values)
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
    extracts: list[Extract | None] = []
    for result in _examine_all(questions, headings):
        extracts.append(result and result[0])
    return extracts


def examine(
    question: str, passages: Sequence[str], headings: Sequence[str] = ()
) -> tuple[Extract, dict[str, float]] | None:
    """Extract the best answer with the features behind its probability."""
    return _examine_all([(question, passages)], [headings])[0]


def _examine_all(
    questions: Sequence[tuple[str, Sequence[str]]], headings: Sequence[Sequence[str]] | None = None
) -> list[tuple[Extract, dict[str, float]] | None]:
    over = headings or [()] * len(questions)
    # Cells of tables that are plainly asked for; the reader reads what speaks of the question's subject and time.
    forms, narrowed, cells = [], [], []
    for (question, passages), titles in zip(questions, over, strict=True):
        form = form_of(question)
        wording = ordinals_as_in(passages, question)
        parts = []
        for text, title in zip_longest(passages, titles[: len(passages)], fillvalue=""):
            parts.append(split_heading(text, title))
        forms.append(form)
        cells.append(find_cell(wording, form, parts))
        narrowed.append((wording, [heading + in_scope(wording, form, body) for heading, body in parts]))
    # The answers, then their probabilities.
    drafts = []
    for (question, passages), form, readings, titles, cell in zip(
        narrowed, forms, read_all(narrowed), over, cells, strict=True
    ):
        draft = _draft_answer(question, form, passages, readings, titles, cell)
        if draft is not None and names_unknown_version(question, passages):
            draft = replace(draft, certainty=0.0)
        drafts.append(draft)
    near = iter(nearness([(draft.question, draft.grounds) for draft in drafts if draft]))
    results: list[tuple[Extract, dict[str, float]] | None] = []
    for draft in drafts:
        if draft is None:
            results.append(None)
        else:
            values = draft.features(next(near))
            results.append((draft.extract(values), values))
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
        line = cell.row.line
        best = next(candidate for candidate in ranked if candidate.passage == cell.row.passage)
        draft = _AnswerDraft(question, form, best, 0.0, best.passage, words=True, certainty=cell.probability)
        return replace(draft, text=cell.text or line, grounds=line, first=line)
    part = _with_asked_part(question, form, ranked[0])
    ranked[0] = part or ranked[0]
    supports, best = score_sentences(question, form, ranked), ranked[0]
    # The only passage leads one that is as likely to answer as not.
    lead = max(0.0, best.score)
    if len(ranked) > 1:
        lead = best.score - ranked[1].score
    draft = _AnswerDraft(question, form, best, lead, best.passage)
    words = best.answer
    if form in (*SENTENCES, "yes/no"):
        words = None
    if words is not None and not says_verb(question, best.text, words):
        words = None
    if words is not None and counts_nothing(question, best.text, words.start, words.start + len(words.text)):
        words = None
    if words is not None:
        # The sentence in which the span begins; the span is cut at its end.
        row = int(np.argmax(supports[0]))
        for at, sentence in enumerate(best.sentences):
            if sentence.start <= words.start < sentence.end:
                row = at
                break
        answer_text, end = words.text, best.sentences[row].end
        if end < words.end and best.text[end].isspace():
            answer_text = best.text[words.start : end]
        draft = replace(draft, text=answer_text, first=sentence_text(best, row), words=True)
        # Noisy-or over the passages that give the same words.
        doubt = 1.0
        for candidate in ranked:
            if candidate.answer and candidate.answer.text.lower() == words.text.lower():
                doubt *= 1 - candidate.answer.certainty
        certainty = 1 - doubt
        if part and is_office_question(question) and has_subject(question, best.text):
            return replace(draft, grounds=draft.first, certainty=HOLDER_PROBABILITY)
        if certainty >= MIN_CERTAINTY or (part and certainty >= MIN_CERTAINTY_OF_PARTS):
            return replace(draft, grounds=_with_heading(best, draft.first))
    quote = quote_sentences(ranked, supports, whole_passage=form != "yes/no")
    passage, grounds = ranked[quote.candidate].passage, _with_heading(ranked[quote.candidate], quote.text)
    if words is not None and certainty >= MIN_CERTAINTY_OF_NAMES and asks_for_words(question, form):
        # Return a name, place, time or number even if unsure; the sentences determine the confidence.
        return replace(draft, grounds=grounds)
    if form == "yes/no":
        verdict = _find_verdict(question, ranked, supports)
        if verdict is not None:
            at, answer_text, first = verdict
            grounds = _with_heading(ranked[at], first)
            draft = replace(draft, best=ranked[at], passage=ranked[at].passage, decided=True)
            return replace(draft, text=answer_text, grounds=grounds, first=first)
    text = _strip_mark(quote.text)
    draft = replace(draft, passage=passage, grounds=grounds, text=text, first=quote.first, words=False)
    if counts_nothing(question, text):
        return replace(draft, certainty=0.0)
    if passage == best.passage and has_asked_steps(question, best.text):
        return replace(draft, certainty=STEPS_PROBABILITY)
    return draft


def _with_asked_part(question: str, form: Form, best: AnswerCandidate) -> AnswerCandidate | None:
    """Return the candidate with the value of the coordinated part that the question names as its answer, as sure as
    the reader is of all parts together; None if there is none."""
    words = best.answer
    if words is None or form not in ("who", "what", "when", "how many"):
        return None
    is_office = is_office_question(question)
    by_number = form != "who" and not is_office
    if form == "what" and by_number and not fits("how many", words.text):
        return None
    text = best.text[best.begin :]
    answer = asked_part(question, form, text, by_number=by_number)
    if answer is None:
        return _in_clause(best, timely_clause(question, form, text))
    part, siblings = answer
    first = best.begin + min(one.start for one in (part, *siblings))
    last = best.begin + max(one.end for one in (part, *siblings))
    if not is_office and not first <= words.start < last:
        return None
    # The reader's own words for the value, such as an amount with a longer unit.
    text, start = part.value.text, best.begin + part.value.start
    end = start + len(text)
    doubt = 1.0
    for span in best.reading.answers:
        span_end = span.start + len(span.text)
        if span.start < last and first < span_end:
            doubt *= 1 - span.certainty
        is_within = (
            best.begin + part.start <= span.start <= start and end <= span_end <= best.begin + part.end
        )
        if by_number and is_within:
            start, end, text = span.start, span_end, span.text
    return replace(best, answer=AnswerSpan(text, start, 1 - doubt))


def _in_clause(best: AnswerCandidate, clause: tuple[int, int] | None) -> AnswerCandidate | None:
    """Return the candidate with the likeliest of the reader's spans in the clause, None if there is none."""
    if clause is None or best.answer is None:
        return None
    start, end = best.begin + clause[0], best.begin + clause[1]
    if start <= best.answer.start < end:
        return None
    for span in best.reading.answers:
        if start <= span.start and span.start + len(span.text) <= end:
            return replace(best, answer=replace(span, certainty=span.certainty + best.answer.certainty))
    return None


def has_subject(question: str, text: str) -> bool:
    """Return whether a text has the content words of a question, without its year."""
    stems = frozenset(stem for stem in telling_stems(question) if not stem.isdigit())
    return stems <= telling_stems(text)


def says_verb(question: str, text: str, words: AnswerSpan) -> bool:
    """Return whether a span stands in the clause of the verb that ends the question: of "What does open_gate return?"
    the one with "returns", not that of a parameter. True for other questions."""
    verb = ASKED_VERB.search(question)
    if verb is None:
        return True
    start, end = words.start, words.start + len(words.text)
    begin = 0
    for place in CLAUSE_BORDER.finditer(text, 0, start):
        begin = place.end()
    following = CLAUSE_BORDER.search(text, end)
    clause = text[begin:]
    if following:
        clause = text[begin : following.start()]
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
    if len(rows) > MAX_QUOTED_SENTENCES:
        rows = rows[-1:]
    first = format_lines(candidate, rows)
    if verdict.is_yes and ABLE.search(question):
        # Who asks whether something can be done also wants to know how.
        rows = find_stretch(candidate, supports[at], verdict.last)
    text = _strip_mark(format_lines(candidate, rows))
    if YES_OR_NO.match(text):
        return at, text, first
    if verdict.is_yes:
        return at, f"Yes: {text}", first
    return at, f"No: {text}", first


def _with_heading(candidate: AnswerCandidate, text: str) -> str:
    """Prepend the heading to a quotation that begins its passage, as in fitting the confidence."""
    heading, body = candidate.text[: candidate.begin], " ".join(candidate.text[candidate.begin :].split())
    opening = " ".join(text.partition(" … ")[0].partition("\n")[0].split())
    if body.startswith(opening):
        return heading + text
    return text


def _strip_mark(text: str) -> str:
    """Strip the bullet, number or box of a lone list item, and the marks of bold text."""
    plain = BOLD.sub(r"\1", text)
    if "\n" in plain:
        return plain
    return TASK.sub("", LIST_MARK.sub("", plain))
