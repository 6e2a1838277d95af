"""Check an LLM's answer against the passages that it read, before it is shown.

Each sentence is supported by a passage, contradicted by one, or not in the cards; the weakest of its clauses decides.
The probability that a clause holds, and the confidence in the whole answer, are logistic regressions
(recipes/verification) on the features of grounds.py.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from kcard.embedded.question_forms import SENTENCES, asks_for_words, content_stems
from kcard.integrators.citations import line_of, without_headings
from kcard.integrators.claims import MarkedSentence, claim_of, holds, numbers_of, without_marks
from kcard.integrators.grounds import MAX_LOG_ODDS, Reading, Window, clause_features, clause_parts
from kcard.interfaces import Checker, Pair
from kcard.llms.embedded_llm import language_of
from kcard.llms.extraction.scope import names_unknown_version
from kcard.selectors.factuality import verdicts
from kcard.text import (
    analyzer,
    command_options,
    language_of_question,
    sentence_spans,
    small_words,
    spaced_words,
    stemmer_of,
    words,
)
from kcard.types import Citation, Passage, Quote, Reply

WEIGHTS = Path(__file__).with_suffix(".json")
MIN_SHARED_WORDS = 0.75  # share of a sentence's words that supports it where only words are compared
MAX_BRIEF_WORDS = 4  # own words, up to which a sentence claims to answer the question with them
MIN_BRIEF_PROBABILITY = 0.5  # of being a right answer, from which a brief sentence may be supported
QUOTED_PROBABILITY = 0.95  # probability that a step holds which a passage has word for word
MIN_DISPUTED_PROBABILITY = 0.7  # of the reader's own answer, from which another one contradicts it
MIN_REFUTED_PROBABILITY = 0.9  # of refutation by the checker, from which a negated sentence is contradicted
MIN_LIST_CONFIDENCE = 0.4  # confidence from which steps, reasons and lists are shown that a passage supports
SURE_SUPPORT, MAX_REFUTED = 0.97, 0.1  # the checker's probabilities of support and of refutation
MIN_CLAUSE_WORDS = 0.66  # share of a clause's own words
ENTAILED_PROBABILITY = 0.8  # probability that a clause holds of which the checker is as sure
POOLED_FAMILY = "pooled"


@dataclass(frozen=True)
class Verification:
    """An answer and what the cards say about it.

    text           the answer without its marks
    citations      one per sentence that claims something
    confidence     the probability that the answer is right; None if its language can't be read
    is_calibrated  whether the confidence was fitted on answers of this LLM's family
    best           the probability that the best of its sentences alone is a right answer
    nearest        the sentence of the passages that answers the question best, and its passage; None if there is none
    note           a sentence for the user about the check
    is_checked     whether there was a passage to check it against
    """

    text: str
    citations: tuple[Citation, ...] = ()
    confidence: float | None = None
    is_calibrated: bool = True
    best: float | None = None
    nearest: Quote | None = None
    note: str = ""
    is_checked: bool = True

    @property
    def is_supported(self) -> bool:
        """Whether every sentence is."""
        return bool(self.citations) and all(c.verdict == "supported" for c in self.citations)

    def is_withheld(self, strict: bool) -> bool:
        """Return whether "I don't know" is the better answer: little in the passages speaks for this one or, if
        `strict`, not every sentence is supported."""
        if not words(self.text):
            return self.is_checked
        if strict and not self.is_supported:
            return True
        if not self.citations:
            return False
        return self.best is not None and self.best < calibration().withheld


@dataclass(frozen=True)
class FittedWeights:
    """The fitted weights (recipes/verification).

    clause     weights of `clause_features`, for the log-odds that a clause holds
    families   for all LLMs ("pooled") the weights of `answer_features`, for the log-odds that an answer is right; for
               each family those of `confidence_of`
    typical    the mean of each feature that an LLM may not give
    supported  the least probability of a supported sentence
    withheld   the confidence below which an answer is withheld
    """

    clause: Mapping[str, float]
    families: Mapping[str, Mapping[str, float]]
    typical: Mapping[str, float]
    supported: float
    withheld: float

    def family_of(self, llm: str) -> str:
        """Return the family that a model's name belongs to: its parts in this order, "pooled" if there is none."""
        for family in self.families:
            pattern = ".*".join(map(re.escape, family.split("-")))
            if family != POOLED_FAMILY and re.search(pattern, llm.lower()):
                return family
        return POOLED_FAMILY


@cache
def calibration() -> FittedWeights:
    return FittedWeights(**json.loads(WEIGHTS.read_text(encoding="utf-8")))


def probability(values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    odds = weights["bias"] + sum(weight * values[name] for name, weight in weights.items() if name != "bias")
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


@dataclass(frozen=True)
class CheckedSentence:
    """A sentence with the features and the window of its weakest clause, and the probability that it holds."""

    text: str
    values: Mapping[str, float]
    window: Window
    probability: float


def check_sentences(
    reading: Reading, sentences: Sequence[MarkedSentence], checker: Checker
) -> list[CheckedSentence]:
    """Check each sentence, clause by clause; the checker reads all clauses in one batch."""
    parts = clause_parts(reading, sentences)
    pairs = []
    for _, clause, window in parts:
        pairs.append(Pair(claim_of(reading.question, clause), reading.texts[window.passage]))
    # The weakest clause of each sentence.
    weakest: dict[MarkedSentence, CheckedSentence] = {}
    for (sentence, clause, window), verdict in zip(parts, verdicts(checker, pairs), strict=True):
        values = clause_features(reading, clause, window, verdict)
        holding = probability(values, calibration().clause)
        if is_entailed(values):
            holding = max(holding, ENTAILED_PROBABILITY)
        if values["of the part"] and values["own words"] >= MIN_CLAUSE_WORDS and not values["negation"]:
            holding = max(holding, ENTAILED_PROBABILITY)
        if values["of another"]:
            holding = min(holding, 1 - QUOTED_PROBABILITY)
        # A step that stands in the passage word for word.
        is_step = reading.form in SENTENCES and len(words(clause)) >= MAX_BRIEF_WORDS
        if is_step and spaced_words(clause) in spaced_words(reading.texts[window.passage]):
            holding = max(holding, QUOTED_PROBABILITY)
        if reading.says_own_answer(clause) and not values["of another"]:
            holding = max(holding, reading.probability)
        if sentence not in weakest or holding < weakest[sentence].probability:
            weakest[sentence] = CheckedSentence(sentence.text, values, window, holding)
    return list(weakest.values())


def is_entailed(values: Mapping[str, float]) -> bool:
    """Return whether the checker is sure of a clause, and the passage has most of its words: it says the same with
    another verb. Of 300 claims about encyclopedic paragraphs this supports 4 more that hold, and none that does not."""
    is_sure = values["checker"] >= SURE_SUPPORT and values["refuted"] <= MAX_REFUTED
    return (
        is_sure
        and values["own words"] >= MIN_CLAUSE_WORDS
        and not values["misfit"]
        and not values["negation"]
    )


def answer_features(checked: Sequence[CheckedSentence], reply: Reply) -> dict[str, float]:
    """Return what tells whether an answer is right: the support of its sentences, and how sure reader and LLM are.

    Without `Reply.tokens` the features of the LLM are left out.
    """
    values = {
        "own words": min(s.values["own words"] for s in checked),
        "question's words": max(s.values["question's words"] for s in checked),
        "outside": max(s.values["outside"] for s in checked),
        "evidence": max(s.values["evidence"] for s in checked),
        "misfit": min(s.values["misfit"] for s in checked),
        "span": max(s.values["span"] for s in checked),
        "agreed and sure": max(s.values["agreed and sure"] for s in checked),
        "disagreed and sure": min(s.values["disagreed and sure"] for s in checked),
        "relevance": max(s.values["relevance"] for s in checked),
        "repeats": min(s.values["repeats"] for s in checked),
    }
    if reply.tokens:
        scores = [max(-MAX_LOG_ODDS, token.log_probability) for token in reply.tokens]
        values["mean log-probability"] = sum(scores) / len(scores)
        values["first log-probability"] = scores[0]
    return values


def confidence_of(values: Mapping[str, float], family: str, fitted: FittedWeights) -> float:
    """Return the probability that an answer with these features is right, in (0, 1).

    The weights of a family are for the log-odds by the pooled ones, and for what the LLM tells.
    """
    pooled = probability(values, fitted.families[POOLED_FAMILY])
    if family == POOLED_FAMILY:
        return pooled
    log_odds = math.log(pooled / (1 - pooled))
    return probability({**fitted.typical, **values, POOLED_FAMILY: log_odds}, fitted.families[family])


def verify(
    question: str, reply: Reply, passages: Sequence[Passage], checker: Checker, llm: str = ""
) -> Verification:
    """Check an LLM's answer against the passages that it read, which are marked as kept.

    llm  the name of its model, which chooses the weights of the confidence
    """
    read_passages = [number for number, passage in enumerate(passages) if passage.kept]
    texts = [passages[number].knowledge for number in read_passages]
    text, sentences = without_marks(reply.text.strip(), texts)
    if not texts:
        return Verification(text, is_checked=False)
    language = language_of_question(question) or language_of(question, texts)
    if language != "en":
        citations = (
            _compare_words(question, sentences, passages, read_passages, language) if reply.known else []
        )
        note = f"the answer was checked by shared words only: the fact checker does not read {language}"
        return Verification(text, tuple(citations), note=note)
    headings = []
    for number in read_passages:
        source = passages[number].source
        headings.append(source.section if source else "")
    reading = Reading.of(question, texts, headings)
    nearest = Quote(reading.quote, reading.passage) if reading.quote else None
    checked = check_sentences(reading, sentences, checker)
    if not checked or not reply.known:
        return Verification(text, nearest=nearest)
    fitted = calibration()
    family = fitted.family_of(llm)
    confidence = confidence_of(answer_features(checked, reply), family, fitted)
    alone = []
    for sentence in checked:
        answering = confidence_of(answer_features([sentence], reply), family, fitted)
        alone.append(min(answering, 1 - QUOTED_PROBABILITY) if sentence.values["of another"] else answering)
    # Beside a sentence with the reader's answer, another one says more, not otherwise.
    says_otherwise = not any(sentence.values["agreed"] for sentence in checked)
    citations = [
        _citation(reading, sentence, answering, passages, read_passages, may_contradict=says_otherwise)
        for sentence, answering in zip(checked, alone, strict=True)
    ]
    best = max(alone)
    has_support = any(citation.verdict == "supported" for citation in citations)
    if has_support and reading.form in SENTENCES and best >= MIN_LIST_CONFIDENCE:
        # What the passages say about how or why mostly answers; a name or time may be true and answer another question.
        best = max(best, fitted.withheld)
    elif reading.form == "yes/no" and reading.stems - content_stems(" ".join(texts)):
        # A yes repeats the question, so that its own words speak for it; but one of them is in no passage.
        best = confidence = min(best, 1 - fitted.supported)
    if not has_support and names_unknown_version(question, texts):
        best = confidence = min(best, 1 - fitted.supported)
    return Verification(text, tuple(citations), confidence, family != POOLED_FAMILY, best, nearest)


def _citation(
    reading: Reading,
    sentence: CheckedSentence,
    answering: float,
    passages: Sequence[Passage],
    read_passages: Sequence[int],
    *,
    may_contradict: bool,
) -> Citation:
    """Return the verdict on a sentence.

    answering       the probability that it is a right answer, were it alone
    may_contradict  whether it contradicts the reader's answer if it gives another one
    """
    values, window = sentence.values, sentence.window
    # A sentence with few words of its own claims that they answer the question; one with many says more than that.
    is_brief = math.expm1(values["found"]) + math.expm1(values["missing"]) <= MAX_BRIEF_WORDS
    holds_up = sentence.probability >= calibration().supported and (
        answering >= MIN_BRIEF_PROBABILITY or not is_brief
    )
    if holds_up and not values["outside"] and not values["repeats"]:
        return _at(sentence, window.passage, window.text, passages, read_passages)
    # The reader, sure of another answer than the one in this sentence, or the same words with or without a "not".
    asks_for_one = may_contradict and asks_for_words(reading.question, reading.form) and reading.in_words
    differs = not values["agreed"] and not values["span"] and not values["misfit"]
    if asks_for_one and reading.probability >= MIN_DISPUTED_PROBABILITY and differs:
        return replace(
            _at(sentence, reading.passage, reading.quote, passages, read_passages), is_contradicted=True
        )
    if (
        values["negation"]
        and not is_brief
        and values["own words"] >= MIN_SHARED_WORDS
        and values["refuted"] >= MIN_REFUTED_PROBABILITY
    ):
        return replace(
            _at(sentence, window.passage, window.text, passages, read_passages), is_contradicted=True
        )
    return Citation(sentence.text, None, round(sentence.probability, 4))


def _at(
    sentence: CheckedSentence,
    passage: int,
    quote: str,
    passages: Sequence[Passage],
    read_passages: Sequence[int],
) -> Citation:
    """Return the citation of a sentence of a passage."""
    number = read_passages[passage]
    source = passages[number].source or passages[number].evidence
    quote = " ".join(without_headings(quote, passages).split())
    line = line_of(quote, source) if source else 0
    return Citation(sentence.text, number, round(sentence.probability, 4), quote, line)


def _compare_words(
    question: str,
    sentences: Sequence[MarkedSentence],
    passages: Sequence[Passage],
    read_passages: Sequence[int],
    language: str,
) -> list[Citation]:
    """Cite by shared words alone, for languages that the models don't read: a sentence is supported by the passage that
    has nearly all of its words and all of its numbers, names and options."""
    texts = [passages[number].knowledge for number in read_passages]
    stems = analyzer(stemmer_of(language))
    small = small_words(language)
    citations = []
    for sentence in sentences:
        own = {stem for word in words(sentence.text) if word not in small for stem in stems(word)}
        new = own - set(stems(question)) or own
        if not own:
            continue
        shares = [len(new & set(stems(text))) / len(new) for text in texts]
        best = max(range(len(texts)), key=lambda number: (shares[number], number in sentence.marks))
        exact = [
            s
            for s in numbers_of(sentence.text) | set(command_options(sentence.text))
            if not holds(question, s)
        ]
        if (
            shares[best] < MIN_SHARED_WORDS
            or not all(holds(texts[best], s) for s in exact)
            or own <= set(stems(question))
        ):
            citations.append(Citation(sentence.text, None, shares[best]))
            continue
        spans = sentence_spans(texts[best])
        quote = max(
            (texts[best][a:b] for a, b in spans), key=lambda t: len(new & set(stems(t))), default=texts[best]
        )
        window = Window(best, quote, 0.0)
        citations.append(
            _at(
                CheckedSentence(sentence.text, {}, window, shares[best]), best, quote, passages, read_passages
            )
        )
    return citations
