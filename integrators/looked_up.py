"""A model beside an index of the same corpus: which of the two is right where they disagree.

Both can state only what stands in the corpus, and an index, if it has the answer, mostly finds it. The model counts
where what it wrote fits the question clearly better, by a logistic regression that recipes/judge fits: the log-odds
that the model is right and the index wrong, given that one of them is.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from kcard.answer import Passage
from kcard.llms.candidates import MISSING_NUMBER, STEMS, asked_about
from kcard.numbers import numbers, ordinals_as_in
from kcard.reader.reading import read_all

__all__ = ["WEIGHTS", "features", "outdone"]

WEIGHTS = Path(__file__).with_name("judge.json")
CLEARLY = 1.0  # log-odds from which the model counts
MOST = 8.0  # log-odds of the reader beyond which it is as sure as can be


def outdone(questions: Sequence[str], passages: Sequence[Sequence[Passage]]) -> list[list[bool]]:
    """Which passages of each question were written by the model of a card whose index is rather right."""
    disputes = [
        (row, card)
        for row, found in enumerate(passages)
        for card in dict.fromkeys(p.card for p in found if p.source is None)
        if any(p.card == card and p.source is not None for p in found)
    ]
    own = [[p for p in passages[row] if p.card == card] for row, card in disputes]
    told = features([(questions[row], found) for (row, _), found in zip(disputes, own, strict=True)])
    lost = {key for key, values in zip(disputes, told, strict=True) if _log_odds(values) < CLEARLY}
    return [[p.source is None and (row, p.card) in lost for p in found] for row, found in enumerate(passages)]


def features(disputes: Sequence[tuple[str, Sequence[Passage]]]) -> list[dict[str, float]]:
    """By how much what a card's model wrote fits the question better than the best that its index looked up; each
    dispute has passages of both.

    relevance  the reader's log-odds, less what the LLM takes off for numbers of the question that a passage lacks
    covered    the share of the question's words, in [-1, 1]
    """
    asked = [
        (ordinals_as_in([_text(p) for p in passages], question), [_text(p) for p in passages])
        for question, passages in disputes
    ]
    found = []
    for (question, texts), readings, (_, passages) in zip(asked, read_all(asked), disputes, strict=True):
        stated = [p.source is None for p in passages]
        relevance = [
            max(-MOST, min(MOST, r.relevance - MISSING_NUMBER * len(numbers(question) - numbers(text))))
            for r, text in zip(readings, texts, strict=True)
        ]
        covered = [_covered(question, text) for text in texts]
        found.append({"bias": 1.0, "relevance": _lead(relevance, stated), "covered": _lead(covered, stated)})
    return found


def _text(passage: Passage) -> str:
    return passage.source.in_context if passage.source else passage.text


def _covered(question: str, text: str) -> float:
    asked = asked_about(question)
    return len(asked & set(STEMS(text))) / max(1, len(asked))


def _lead(scores: Sequence[float], written: Sequence[bool]) -> float:
    """The model's best score less the best of its index."""
    own = max(score for score, by_model in zip(scores, written, strict=True) if by_model)
    return own - max(score for score, by_model in zip(scores, written, strict=True) if not by_model)


def _log_odds(values: Mapping[str, float]) -> float:
    return sum(weight * values[name] for name, weight in _weights().items())


@cache
def _weights() -> Mapping[str, float]:
    found: dict[str, float] = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return found
