"""How sure an answer out of passages is: a logistic regression that was fitted on people's questions about manuals, a
part of them without an answer there (recipes/reader/calibrate.py)."""

import json
import math
from collections.abc import Mapping, Sequence, Set
from functools import cache

from kcard import embeddings
from kcard.llms.candidates import STEMS, AnswerCandidate, asked_about
from kcard.llms.polarity import polarity
from kcard.question_form import SENTENCES, Form
from kcard.reader.network import WEIGHTS

__all__ = ["features", "nearness", "probability"]


def features(
    question: str, form: Form, best: AnswerCandidate, grounds: str, first: str, near: float
) -> dict[str, float]:
    """What tells whether an answer is right that comes from the best candidate first and rests on these sentences, the
    likeliest of which is `first`. `near`: see nearness."""
    asked = asked_about(question)
    in_words = best.answer is not None and form not in (*SENTENCES, "yes/no")
    return {
        "bias": 1.0,
        "relevance": max(-8.0, min(8.0, best.score)),
        "certainty": best.answer.certainty if best.answer and in_words else 0.0,
        "covered by passage": _covered(asked, best.text),
        "covered by grounds": _covered(asked, grounds),
        "near": near,
        "sentences": float(form in SENTENCES),
        "yes/no": float(form == "yes/no"),
        "polarity": abs(polarity(question, first)) if form == "yes/no" else 0.0,
    }


def probability(found: Mapping[str, float]) -> float:
    """That the answer with these features is right, in (0, 1)."""
    weights = _weights()
    odds = sum(weights.get(name, 0.0) * value for name, value in found.items())
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, odds))))


def _covered(asked: Set[str], text: str) -> float:
    """The share of the question's words that a text has."""
    return len(asked & set(STEMS(text))) / len(asked) if asked else 1.0


def nearness(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The cosine of each question and the sentences that its answer rests on, by the sentence encoder."""
    vectors = embeddings.embed([text for pair in pairs for text in pair])
    return [float(asked @ grounds) for asked, grounds in zip(vectors[::2], vectors[1::2], strict=True)]


@cache
def _weights() -> Mapping[str, float]:
    """Of the regression, by feature."""
    found: dict[str, float] = json.loads((WEIGHTS / "calibration.json").read_text(encoding="utf-8"))
    return found
