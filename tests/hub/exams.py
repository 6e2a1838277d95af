"""Exams for tests: one that a hub takes for plausible."""

import json

__all__ = ["exam"]

QUESTIONS = 10


def exam(card: str, factuality: object = None, *, recall: float = 0.9, corpus_sha256: str = "") -> bytes:
    """The exam.json of a card, with this mean factuality; None: not measured."""
    own = {
        "sha256": corpus_sha256,
        "questions": QUESTIONS,
        "questions_sha256": "ab" * 32,
        "recall": _mean(recall),
        "factuality": None
        if factuality is None
        else {"scores": [factuality] * QUESTIONS, "mean": _mean(factuality)},
    }
    evidence = {} if factuality is None else {"evidence": "atlas", "evidence_sha256": "cd" * 32}
    return json.dumps({"format": 2, "card": card, "own": own, **evidence}).encode()


def _mean(value: object) -> dict[str, object]:
    if not isinstance(value, int | float):
        return {"mean": value, "low": 0.0, "high": 1.0}
    return {"mean": value, "low": max(0.0, value - 0.1), "high": min(1.0, value + 0.1)}
