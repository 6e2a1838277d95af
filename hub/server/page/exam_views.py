"""The exam of a card as pages show it, whatever is in the file: what can't be read is left out."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from kcard.errors import KcardError
from kcard.hub.repositories.exams import checked_share
from kcard.hub.store.blobs import Blobs

__all__ = ["ExamView", "Interval", "Question", "exam"]

LARGEST = 2_000_000  # bytes
LONGEST = 1200  # characters of a shown text
MOST_SCORES, MOST_SHOWN = 5000, 10
T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Question:
    """A question, an accepted answer, what the card wrote, and whether that has the answer."""

    question: str
    answer: str
    text: str
    right: bool
    score: float | None


@dataclass(frozen=True)
class ExamView:
    """An exam about the card's own corpus.

    scores      of its documents, in [0, 1]: factuality, else faithfulness; `scored` says which
    digest      of the questions: exams with the same asked the same
    shown       the best and the worst documents, which travel with the card
    """

    recall: Interval | None
    lift: Interval | None
    faithfulness: Interval | None
    factuality: Interval | None
    scored: str
    scores: tuple[float, ...]
    questions: int
    asked: str
    digest: str
    base: str
    checker: str
    evidence: str
    shown: tuple[Question, ...]


def exam(blobs: Blobs, sha256: str) -> ExamView | None:
    """The exam in a blob; None if it can't be read or has nothing about the card's own corpus."""
    try:
        return _read(blobs, sha256)
    except (KcardError, ValueError, AttributeError, RecursionError):
        return None


@lru_cache(maxsize=64)
def _read(blobs: Blobs, sha256: str) -> ExamView | None:
    with blobs.open(sha256) as stream:
        text = stream.read(LARGEST + 1)
    found = json.loads(text) if len(text) <= LARGEST else {}
    own = found.get("own")
    return _view(found, own) if isinstance(own, dict) else None


def _view(found: dict[str, Any], own: dict[str, Any]) -> ExamView:
    scored = "factuality" if _try(lambda: own["factuality"]["scores"]) else "faithfulness"
    judged = [*_list(found.get("best")), *_list(found.get("worst"))]
    shown = dict.fromkeys(question for one in judged if (question := _question(one, scored)) is not None)
    return ExamView(
        recall=_interval(own.get("recall"), -1),
        lift=_interval(own.get("lift"), -1),
        faithfulness=_interval(_try(lambda: own["faithfulness"]["mean"]), 0),
        factuality=_interval(_try(lambda: own["factuality"]["mean"]), 0),
        scored=scored,
        scores=tuple(
            _try(lambda: [checked_share(float(s)) for s in own[scored]["scores"][:MOST_SCORES]]) or ()
        ),
        questions=_try(lambda: int(own["questions"])) or 0,
        asked=_text(own.get("asked")),
        digest=_text(own.get("questions_sha256")),
        base=_text(found.get("base")),
        checker=_text(found.get("checker")),
        evidence=_text(found.get("evidence")),
        shown=tuple(shown),
    )


def _question(one: object, scored: str) -> Question | None:
    if not isinstance(one, dict) or not _text(one.get("question")):
        return None
    score = _try(lambda: checked_share(float(one[scored])))
    return Question(
        _text(one["question"]),
        _text(one.get("answer")),
        _text(one.get("text")),
        one.get("recalled") is True,
        score,
    )


def _interval(value: Any, least: float) -> Interval | None:
    def read() -> Interval:
        mean, low, high = (float(value[key]) for key in ("mean", "low", "high"))
        if not least <= mean <= 1:
            raise ValueError(mean)
        return Interval(mean, low, high)

    return _try(read)


def _try(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (KcardError, ValueError, TypeError, KeyError, IndexError, OverflowError):
        return None


def _list(value: object) -> list[Any]:
    return value[:MOST_SHOWN] if isinstance(value, list) else []


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
