"""Answer extraction from passages, with a calibrated probability. Every answer quotes the passages."""

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
from kcard.llms.extraction.entries import find_default, find_entry, term_of
from kcard.llms.extraction.quotation import (
    MAX_QUOTED_SENTENCES,
    MIN_STEPS,
    NUMBERED_STEP,
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

MAX_LEAD = 5.0  # in log-odds
# Values of the feature "polarity": a verdict of yes or no, and a quotation instead of one.
DECIDED_POLARITY = 2.0
UNDECIDED_POLARITY = 0.5


def confidence_features(
    question: str, form: Form, best: AnswerCandidate, lead: float, grounds: str, near: float, *, decided: bool
) -> dict[str, float]:
    """Return the features of an answer from the `best` candidate.

    lead     by how much its score exceeds the next one's
    grounds  the supporting sentences
    near     their nearness to the question
    decided  whether the answer is a verdict of yes or no
    """
    question_stems = content_stems(question)
    polarity = certainty = 0.0
    if form == "yes/no" and decided:
        polarity = DECIDED_POLARITY
    elif form == "yes/no":
        polarity = UNDECIDED_POLARITY
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
    """Return the cosine of each question with its answer's supporting sentences, by the sentence encoder."""
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


# Certainty of a span, over all passages that give it, below which sentences are the answer: to open questions, and to
# those for a name, place, time or number. On questions about seventeen manuals, .20 of the spans below 0.4 were right,
# and .48 of the sentences.
MIN_CERTAINTY = 0.5
MIN_CERTAINTY_OF_NAMES = 0.4
MIN_CERTAINTY_OF_PARTS = 0.25  # of all coordinated parts together, if the question names one
BOLD = re.compile(r"(?<![\w*/])\*\*(\w[^*\n]*)\*\*(?![\w*/])")
ANSWER_MARK = re.compile(r"^(?:A|Answer): +")  # in a list of questions and answers
YES_OR_NO = re.compile(r"(?:yes|no)\b", re.IGNORECASE)
ASKED_VERB = re.compile(r"\bwhat (?:does|do|did) \w.* (?<!the )(?<!a )(?<!an )(\w+)\W*$", re.IGNORECASE)
CLAUSE_BORDER = re.compile(r"[.!?;:]\s+|\n|,\s+(?:and|but|while|which)\s+|\s+and\s+(?=\w+s\s)", re.IGNORECASE)
ABLE = re.compile(
    r"\b(?:can|could|may) (?:i|we|one)\b|\bis (?:it possible|there (?:a|any|some) way)\b", re.IGNORECASE
)
HOLDER_PROBABILITY = 0.75  # of the only name that a passage gives for an office
STEPS_PROBABILITY = 0.5  # of numbered items that have all words of a question for steps

# Probability below which an answer is withheld. It is lower for steps, reasons and lists: people see that a quotation
# does not answer, but not that a name is wrong (recipes/reader/calibrate.py, benchmarks/real_documents.py).
MIN_PROBABILITY = 0.36
MIN_PROBABILITY_OF_SENTENCES = 0.25


@dataclass(frozen=True)
class Extract:
    """An answer from passages.

    text         the answer
    quote        its main supporting sentence
    passage      the number of the passage that contains the quote
    probability  that the answer is right, in [0, 1]
    words        whether it is a span of words rather than sentences
    term         the option or command that answers, if it is the entry of a manual
    threshold    probability below which it is withheld
    """

    text: str
    quote: str
    passage: int
    probability: float
    words: bool = False
    term: str = ""
    threshold: float = MIN_PROBABILITY

    @property
    def is_sure(self) -> bool:
        """Return whether it may be given as an answer."""
        return self.probability >= self.threshold


@dataclass(frozen=True)
class _AnswerDraft:
    """An answer whose probability is not computed yet.

    best       the candidate that leads the others by `lead`
    grounds    the supporting sentences, of which `first` is the main one
    decided    whether it is a verdict of yes or no
    certainty  its probability, where that is not computed from the features
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
    term: str = ""
    decided: bool = False
    certainty: float | None = None

    def features(self, near: float) -> dict[str, float]:
        return confidence_features(
            self.question, self.form, self.best, self.lead, self.grounds, near, decided=self.decided
        )

    def extract(self, values: Mapping[str, float]) -> Extract:
        threshold = MIN_PROBABILITY
        if self.form in SENTENCES:
            threshold = MIN_PROBABILITY_OF_SENTENCES
        certainty = self.certainty
        if certainty is None:
            certainty = probability(values)
        return Extract(self.text, self.first, self.passage, certainty, self.words, self.term, threshold)


def extract(question: str, passages: Sequence[str]) -> Extract | None:
    """Extract the best answer from passages, likeliest first, which may begin with their headings; None if there is no
    text."""
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
    all_headings = headings or [()] * len(questions)
    # Find table cells that the question asks for, and narrow the passages to its subject and time for the reader.
    forms, narrowed, cells = [], [], []
    for (question, passages), titles in zip(questions, all_headings, strict=True):
        form = form_of(question)
        wording = ordinals_as_in(passages, question)
        parts = []
        for text, title in zip_longest(passages, titles[: len(passages)], fillvalue=""):
            parts.append(split_heading(text, title))
        forms.append(form)
        cell = find_default(wording, form, parts) or find_entry(wording, form, parts)
        cells.append(cell or find_cell(wording, form, parts))
        narrowed.append((wording, [heading + in_scope(wording, form, body) for heading, body in parts]))
    # Draft the answers, then compute their probabilities.
    drafts = []
    for (question, passages), form, readings, titles, cell in zip(
        narrowed, forms, read_all(narrowed), all_headings, cells, strict=True
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
        best = next((each for each in ranked if each.passage == cell.row.passage), ranked[0])
        draft = _AnswerDraft(question, form, best, 0.0, best.passage, certainty=cell.probability)
        draft = replace(draft, words=cell.in_words, term=cell.term)
        return replace(draft, text=cell.text or line, grounds=line, first=line)
    with_part = _with_asked_part(question, form, ranked[0])
    if with_part is not None:
        ranked[0] = with_part
    best = ranked[0]
    supports = score_sentences(question, form, ranked)
    # A lone passage leads an imaginary one that is as likely to answer as not.
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
        # Find the sentence in which the span begins, and cut the span at its end.
        row = int(np.argmax(supports[0]))
        for number, sentence in enumerate(best.sentences):
            if sentence.start <= words.start < sentence.end:
                row = number
                break
        answer_text, end = words.text, best.sentences[row].end
        if end < words.end and best.text[end].isspace():
            answer_text = best.text[words.start : end]
        draft = replace(draft, text=answer_text, first=sentence_text(best, row), words=True)
        # The certainty is a noisy-or over the passages that give the same words.
        doubt = 1.0
        for candidate in ranked:
            if candidate.answer and candidate.answer.text.lower() == words.text.lower():
                doubt *= 1 - candidate.answer.certainty
        certainty = 1 - doubt
        if with_part and is_office_question(question) and has_subject(question, best.text):
            return replace(draft, grounds=draft.first, certainty=HOLDER_PROBABILITY)
        if certainty >= MIN_CERTAINTY or (with_part and certainty >= MIN_CERTAINTY_OF_PARTS):
            return replace(draft, grounds=_with_heading(best, draft.first))
    quote = quote_sentences(ranked, supports, whole_passage=form != "yes/no", cuts_entries=form != "list")
    quoted = ranked[quote.candidate]
    grounds = _with_heading(quoted, quote.text)
    if words is not None and certainty >= MIN_CERTAINTY_OF_NAMES and asks_for_words(question, form):
        # Return a name, place, time or number even if unsure; the sentences determine the confidence.
        return replace(draft, grounds=grounds)
    if form == "yes/no":
        verdict = _find_verdict(question, ranked, supports)
        if verdict is not None:
            number, answer_text, first = verdict
            decisive = ranked[number]
            grounds = _with_heading(decisive, first)
            draft = replace(draft, best=decisive, passage=decisive.passage, decided=True)
            return replace(draft, text=answer_text, grounds=grounds, first=first)
    text = _with_term(quoted, _strip_mark(quote.text))
    draft = replace(draft, passage=quoted.passage, grounds=grounds, text=text, first=quote.first, words=False)
    if counts_nothing(question, text):
        return replace(draft, certainty=0.0)
    if quoted.passage == best.passage and has_asked_steps(question, best.text):
        return replace(draft, certainty=STEPS_PROBABILITY)
    return draft


def _with_asked_part(question: str, form: Form, best: AnswerCandidate) -> AnswerCandidate | None:
    """Return the candidate with a new answer: the value of the coordinated part that the question names, with the
    reader's certainty of all parts together. None if the question names no part."""
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
    parts_start = best.begin + min(one.start for one in (part, *siblings))
    parts_end = best.begin + max(one.end for one in (part, *siblings))
    if not is_office and not parts_start <= words.start < parts_end:
        return None
    text = part.value.text
    start = best.begin + part.value.start
    end = start + len(text)
    doubt = 1.0
    for span in best.reading.answers:
        span_end = span.start + len(span.text)
        if span.start < parts_end and parts_start < span_end:
            doubt *= 1 - span.certainty
        # Prefer the reader's own words for the value, such as an amount with a longer unit.
        includes_value = span.start <= start and end <= span_end
        is_in_part = best.begin + part.start <= span.start and span_end <= best.begin + part.end
        if by_number and includes_value and is_in_part:
            start, end, text = span.start, span_end, span.text
    return replace(best, answer=AnswerSpan(text, start, 1 - doubt))


def _in_clause(best: AnswerCandidate, clause: tuple[int, int] | None) -> AnswerCandidate | None:
    """Return the candidate with the likeliest of the reader's spans in the clause; None if its answer is there already,
    or if no span is."""
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
    """Return whether a text has the content words of a question, apart from numbers."""
    stems = frozenset(stem for stem in telling_stems(question) if not stem.isdigit())
    return stems <= telling_stems(text)


def says_verb(question: str, text: str, words: AnswerSpan) -> bool:
    """Return whether a span stands in a clause with the verb that ends the question: for "What does open_gate return?"
    one with "returns", not one about a parameter. True for questions that end otherwise."""
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
    return is_covered and bool(STEPS.search(question)) and len(NUMBERED_STEP.findall(text)) >= MIN_STEPS


def _find_verdict(
    question: str, candidates: Sequence[AnswerCandidate], supports: Sequence[Sequence[float]]
) -> tuple[int, str, str] | None:
    """Return (index of the candidate, answer, sentences that it rests on) of a verdict of yes or no; None if none of
    the candidates has one, or if they contradict each other."""
    verdicts: list[tuple[int, YesNo]] = []
    for number, candidate in enumerate(candidates):
        sentences = [sentence_text(candidate, row) for row in range(len(candidate.sentences))]
        verdict = decide(question, sentences, candidate.text[: candidate.begin])
        if verdict is not None:
            verdicts.append((number, verdict))
    if len({verdict.is_yes for _, verdict in verdicts}) != 1:
        return None
    number, verdict = verdicts[0]
    candidate = candidates[number]
    rows = list(range(verdict.first, verdict.last + 1))
    if len(rows) > MAX_QUOTED_SENTENCES:
        rows = rows[-1:]
    first = format_lines(candidate, rows)
    if verdict.is_yes and ABLE.search(question):
        # Who asks whether something can be done also wants to know how.
        rows = find_stretch(candidate, supports[number], verdict.last, cuts_entries=True)
    text = _strip_mark(format_lines(candidate, rows))
    if not YES_OR_NO.match(text) and verdict.is_yes:
        text = f"Yes: {text}"
    elif not YES_OR_NO.match(text):
        text = f"No: {text}"
    return number, text, first


def _with_heading(candidate: AnswerCandidate, text: str) -> str:
    """Prepend the heading to a quotation that begins its passage, as was done when the confidence was fitted."""
    heading, body = candidate.text[: candidate.begin], " ".join(candidate.text[candidate.begin :].split())
    opening = " ".join(text.partition(" … ")[0].partition("\n")[0].split())
    if body.startswith(opening):
        return heading + text
    return text


def _with_term(candidate: AnswerCandidate, text: str) -> str:
    """Prepend the option or command that a quotation explains, where this is the heading of its passage."""
    term = term_of(candidate.text[: candidate.begin])
    if term and term not in text:
        return f"{term}: {text}"
    return text


def _strip_mark(text: str) -> str:
    """Strip the marks of bold text and, of a single line, its bullet, number, check box or "A:"."""
    plain = BOLD.sub(r"\1", text)
    if "\n" in plain:
        return plain
    return ANSWER_MARK.sub("", TASK.sub("", LIST_MARK.sub("", plain)))
