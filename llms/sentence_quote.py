"""Which sentences of the passages an answer rests on, and the quotation that is made of them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kcard.llms.candidates import STEMS, AnswerCandidate, asked_about
from kcard.reader.reading import Sentence

__all__ = ["SentenceQuote", "joined", "quoted", "supports_of"]

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
    asked = asked_about(question)
    return [_supports(asked, candidate) for candidate in candidates]


def _supports(asked: set[str], candidate: AnswerCandidate) -> list[float]:
    text, words = candidate.text, candidate.answer
    found = []
    for sentence in candidate.sentences:
        stems = set(STEMS(text[sentence.start : sentence.end]))
        holds = words is not None and sentence.start <= words.start < sentence.end
        found.append(
            sentence.evidence
            + SHARED * (len(asked & stems) / len(asked) if asked else 0.0)
            + ANSWERING * (words.certainty if words and holds else 0.0)
        )
    return found


def quoted(
    candidates: Sequence[AnswerCandidate], supports: Sequence[Sequence[float]], *, whole_list: bool
) -> SentenceQuote:
    """The likeliest sentence of all with those beside it that the answer rests on too, of a list all items and what
    leads to it; then the likeliest of the others."""
    order = sorted(_likeliness(candidates, supports), reverse=True)
    most, lead, best = order[0]
    rows = _neighbours(candidates[lead], supports[lead], best, whole_list=whole_list)
    chosen = [(lead, row) for row in rows]
    for likeliness, at, row in order[1:]:
        if len(chosen) >= MOST or likeliness < most - APART:
            break
        if (at, row) not in chosen:
            text, sentences = candidates[at].text, candidates[at].sentences
            led = row + 1 < len(sentences) and text[: sentences[row].end].endswith(":")
            chosen += [(at, row), *([(at, row + 1)] if led and (at, row + 1) not in chosen else [])]
    parts = [
        _lines(candidates[at], sorted(row for other, row in chosen if other == at))
        for at in dict.fromkeys(at for at, _ in chosen)
    ]
    return SentenceQuote("\n".join(parts), lead, _lines(candidates[lead], rows))


def _likeliness(
    candidates: Sequence[AnswerCandidate], supports: Sequence[Sequence[float]]
) -> Iterator[tuple[float, int, int]]:
    """(log-probability that the answer rests on a sentence, but for a constant; its candidate; its number)."""
    for at, (candidate, support) in enumerate(zip(candidates, supports, strict=True)):
        sharp = np.array(support) * SHARPNESS
        for row, value in enumerate(sharp - np.logaddexp.reduce(sharp)):
            yield candidate.score + float(value), at, row


def joined(candidate: AnswerCandidate, row: int) -> str:
    """One sentence, its white space made single."""
    sentence = candidate.sentences[row]
    return " ".join(candidate.text[sentence.start : sentence.end].split())


def _neighbours(
    candidate: AnswerCandidate, support: Sequence[float], best: int, *, whole_list: bool
) -> list[int]:
    """The best sentence and those beside it that belong to it, in order."""
    text, sentences = candidate.text, candidate.sentences
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
    if first and LEANING.match(text, sentences[first].start):
        first -= 1  # what the sentence speaks of
    if text[: sentences[last].end].endswith(":") and last + 1 < len(sentences):
        last += 1  # the command or the list that the sentence leads to
        while (
            words < LONGEST
            and last + 1 < len(sentences)
            and _same_list(text, sentences, last + 1, first, last)
        ):
            last += 1
            words += _words(text, sentences[last])
    return list(range(first, last + 1))


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


def _lines(candidate: AnswerCandidate, rows: Sequence[int]) -> str:
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
