"""An answer taken out of passages: words, whole sentences, a list, or yes or no with the sentence that says so.

What is said stands in the passages; nothing is made up. How sure it is comes from a logistic regression that was fitted
on real questions, a part of them without an answer (recipes/reader/calibrate.py).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from kcard.llms.answer_type import fits
from kcard.llms.question_form import Form, form_of
from kcard.numbers import numbers
from kcard.reader.network import WEIGHTS
from kcard.reader.reading import Answer, Reading, Sentence, read
from kcard.words import analyzer

__all__ = ["Extract", "examine", "extract"]

SENTENCES: tuple[Form, ...] = ("how", "why", "list")
LONGEST = 120  # words of an answer of sentences
NEAR = 1.5  # sentences whose support falls behind the best by more are not part of the answer
SECOND = 3.0  # the same of the next best sentence, wherever it stands
SHARED, ANSWERING = 2.0, 2.0  # support of all words of the question, and of the words that answer for certain
SURE = 0.35  # certainty of words below which the whole sentence is the answer
YES = 0.5  # log-odds of yes or no below which only the sentence is given
MISSING_NUMBER = 4.0  # log-odds for each number of the question that a passage lacks
LATER = 0.7  # log-odds for each passage that stands before, of the first FEW
FEW = 3
MISFIT = 3.0  # log-odds for words that are not of the kind that the question asks for
ITEM = re.compile(r"\s*(?:[-*•]|\(?\d{1,3}[.)])\s")
WORD = re.compile(r"\w[\w.+/-]*\w|\w")
STEMS = analyzer("english")
_ASKING = """
a an the of in on at to for from by with and or is are was were be been do does did can could will would should has have
had may might must i my me we our you your it its this that these those there what which who whom whose when where why
how many much long often if not no as so than then
"""
ASKING = frozenset(_ASKING.split())


@dataclass(frozen=True)
class Extract:
    """An answer out of passages.

    text         what is said
    quote        the sentence or sentences that it rests on
    passage      the number of the passage that they stand in
    probability  that the answer is right, in [0, 1]
    """

    text: str
    quote: str
    passage: int
    probability: float


@dataclass(frozen=True)
class Candidate:
    """A passage, what the reader says of it, the words of it that answer, if any, and the score for the question."""

    passage: int
    text: str
    reading: Reading
    answer: Answer | None
    score: float


def extract(question: str, passages: Sequence[str]) -> Extract | None:
    """The best answer over all passages, which come the likeliest first; None where there is no text.

    Passages may begin with their headings.
    """
    found = examine(question, passages)
    return found[0] if found else None


def examine(question: str, passages: Sequence[str]) -> tuple[Extract, dict[str, float]] | None:
    """The same with the features that its probability was computed from."""
    form = form_of(question)
    candidates = _candidates(question, form, passages)
    if not candidates:
        return None
    text, quote = _answer(question, form, candidates[0])
    features = _features(question, form, candidates)
    return Extract(text, quote, candidates[0].passage, _probability(features)), features


def _candidates(question: str, form: Form, passages: Sequence[str]) -> list[Candidate]:
    """The passages, best first."""
    asked = numbers(question)
    found = []
    for at, (text, reading) in enumerate(zip(passages, read(question, passages), strict=True)):
        if reading.sentences:
            answer = max(reading.answers, key=lambda words: _likelihood(form, words), default=None)
            score = reading.relevance - MISSING_NUMBER * len(asked - numbers(text))
            score -= 0.0 if answer and fits(form, answer.text) else MISFIT
            found.append(Candidate(at, text, reading, answer, score - LATER * min(at, FEW)))
    return sorted(found, key=lambda candidate: -candidate.score)


def _likelihood(form: Form, words: Answer) -> float:
    return math.log(max(words.certainty, 1e-9)) - (0.0 if fits(form, words.text) else MISFIT)


def _answer(question: str, form: Form, best: Candidate) -> tuple[str, str]:
    """(answer, the sentences that it rests on)."""
    reading, text, words = best.reading, best.text, best.answer
    support = _support(question, best)
    first = _sentence(text, reading.sentences[int(np.argmax(support))])
    if form not in (*SENTENCES, "yes/no") and words is not None and words.certainty >= SURE:
        around = next((s for s in reading.sentences if s.start <= words.start < s.end), None)
        return words.text, _sentence(text, around) if around else first
    block = _block(text, reading.sentences, support, whole_list=form in ("how", "list"))
    if form == "yes/no" and abs(reading.yes) >= YES:
        return f"{'Yes' if reading.yes > 0 else 'No'}: {block}", first
    return block, block if form in SENTENCES else first


def _support(question: str, candidate: Candidate) -> list[float]:
    """How likely the answer rests on each sentence: what the network says of it, the question's words in it, and the
    words that may answer. Log-odds of a kind."""
    text, words = candidate.text, candidate.answer
    asked = _asked(question)
    found = []
    for sentence in candidate.reading.sentences:
        told = set(STEMS(text[sentence.start : sentence.end]))
        holds = words is not None and sentence.start <= words.start < sentence.end
        found.append(
            sentence.evidence
            + SHARED * (len(asked & told) / len(asked) if asked else 0.0)
            + ANSWERING * (words.certainty if words and holds else 0.0)
        )
    return found


def _asked(question: str) -> set[str]:
    """The stems of the words that a question is about."""
    return {stem for word in WORD.findall(question) if word.lower() not in ASKING for stem in STEMS(word)}


def _sentence(text: str, sentence: Sentence) -> str:
    return " ".join(text[sentence.start : sentence.end].split())


def _block(text: str, sentences: Sequence[Sentence], support: Sequence[float], *, whole_list: bool) -> str:
    """The best sentence and the next best; their neighbours, where the answer rests on them too; of a list all items,
    and what leads to it."""
    best, *others = sorted(range(len(sentences)), key=lambda at: -support[at])
    first = last = best
    words = _words(text, sentences[best])
    while words < LONGEST:
        sides = [at for at in (first - 1, last + 1) if 0 <= at < len(sentences)]
        able = [
            at
            for at in sides
            if support[at] >= support[best] - NEAR
            or (whole_list and _same_list(text, sentences, at, first, last))
        ]
        if not able:
            break
        at = max(able, key=lambda at: support[at])
        words += _words(text, sentences[at])
        first, last = min(first, at), max(last, at)
    chosen = {*range(first, last + 1)}
    if len(chosen) == 1 and others and support[others[0]] >= support[best] - SECOND:
        chosen.add(others[0])
    return _lines(text, sentences, sorted(chosen))


def _same_list(text: str, sentences: Sequence[Sentence], at: int, first: int, last: int) -> bool:
    """Whether a neighbour belongs to the list that the answer has begun: another item, or what introduces them."""
    edge = sentences[first if at < first else last]
    beside = text[sentences[at].start : sentences[at].end]
    inside = text[edge.start : edge.end]
    if at < first:
        return bool(ITEM.match(inside)) and (bool(ITEM.match(beside)) or beside.endswith(":"))
    return bool(ITEM.match(beside)) and (bool(ITEM.match(inside)) or inside.endswith(":"))


def _words(text: str, sentence: Sentence) -> int:
    return text.count(" ", sentence.start, sentence.end) + 1


def _lines(text: str, sentences: Sequence[Sentence], chosen: Sequence[int]) -> str:
    """Sentences in their order, each line of the passage a line; where some are left out between them stands …"""
    parts: list[str] = []
    for at in chosen:
        end = sentences[at].end
        if at - 1 in chosen:
            parts[-1] += text[sentences[at - 1].end : end]
        else:
            parts.append(text[sentences[at].start : end])
    lines = ("\n".join(" ".join(line.split()) for line in part.split("\n") if line.strip()) for part in parts)
    return " … ".join(lines)


def _features(question: str, form: Form, candidates: Sequence[Candidate]) -> dict[str, float]:
    """What tells whether the best candidate answers the question."""
    best = candidates[0]
    asked, told = _asked(question), set(STEMS(best.text))
    support = max(_support(question, best))
    names = {w.lower() for w in WORD.findall(question)[1:] if not w.islower() and w.lower() not in ASKING}
    spoken = best.text.lower()
    second = candidates[1].score if len(candidates) > 1 else best.score - 4
    return {
        "bias": 1.0,
        "relevance": max(-8.0, min(8.0, best.score)),
        "ahead": max(0.0, min(6.0, best.score - second)),
        "certainty": best.answer.certainty if best.answer and form not in (*SENTENCES, "yes/no") else 0.0,
        "agreeing": _agreeing(candidates) if form not in (*SENTENCES, "yes/no") else 0.0,
        "support": max(-6.0, min(8.0, support)),
        "covered": len(asked & told) / len(asked) if asked else 1.0,
        "names missing": float(sum(name not in spoken for name in names)),
        "sentences": float(form in SENTENCES),
        "yes/no": float(form == "yes/no"),
        "polarity": min(4.0, abs(best.reading.yes)) if form == "yes/no" else 0.0,
    }


def _agreeing(candidates: Sequence[Candidate]) -> float:
    """How much other passages that give the same answer add to the odds of the best."""
    best = candidates[0]
    if best.answer is None:
        return 0.0
    same = [c.score for c in candidates if c.answer and c.answer.text.lower() == best.answer.text.lower()]
    return min(2.0, math.log(sum(math.exp(score - best.score) for score in same)))


def _probability(found: Mapping[str, float]) -> float:
    weights = _calibration()
    odds = sum(weights.get(name, 0.0) * value for name, value in found.items())
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, odds))))


@cache
def _calibration() -> Mapping[str, float]:
    """The weights of the regression, by feature."""
    found: dict[str, float] = json.loads((WEIGHTS / "calibration.json").read_text(encoding="utf-8"))
    return found
