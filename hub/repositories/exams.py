"""The exam that comes with a card: its self-declared figures, and whether it is plausible.

A plausible exam may still be forged; only the hub's own exam and audits are trusted. docs/evaluation.md has the format.
"""

import re
from collections.abc import Mapping
from typing import Any

from kcard.errors import UsageError
from kcard.hub.repositories.figures import Declared
from kcard.json_values import parse
from kcard.manifest import Manifest

__all__ = ["EXAM", "checked_share", "declared", "has_weights"]

EXAM = "exam.json"
FORMAT = 2
WEIGHTS = ".safetensors"
SHA256 = re.compile(r"[0-9a-f]{64}")
ROUNDING = 0.0002  # means and scores have four digits
# The largest sample whose interval has a width after rounding.
MOST_QUESTIONS = 10_000


def declared(exam: bytes, manifest: Manifest) -> Declared:
    """The figures of the exam.json of a card. Figures that can't be read are omitted."""
    try:
        found = parse(exam.decode())
    except ValueError as error:
        return Declared(fault=f"it is not JSON: {' '.join(str(error).split())[:100]}")
    own = _object(_object(found).get("own"))
    recall, factuality = _object(own.get("recall")), _object(own.get("factuality"))
    mean, fault = _object(factuality.get("mean")), _fault(found, manifest) or ""
    return Declared(_share(recall.get("mean")), _share(mean.get("mean")), fault, _coverage(factuality))


def _coverage(factuality: Mapping[str, Any]) -> float | None:
    """The share of the documents that have a score; None if it is not told."""
    scores, unknown = factuality.get("scores"), factuality.get("unknown", 0)
    if not isinstance(scores, list) or type(unknown) is not int or unknown < 0 or not scores:
        return None
    return len(scores) / (len(scores) + unknown)


def has_weights(manifest: Manifest) -> bool:
    """Whether the card has a model, or files that are weights, whatever kind of card it claims to be."""
    return manifest.has_model or any(path.lower().endswith(WEIGHTS) for path in manifest.files)


def checked_share(value: float, name: str = "threshold", other: str = ", or off") -> float:
    """The value. Raises UsageError, with its name and what it may be besides, unless it is in [0, 1]."""
    if not 0 <= value <= 1:
        raise UsageError(f"{name} {value:g}: it must be between 0 and 1{other}")
    return value


def _fault(exam: object, manifest: Manifest) -> str | None:
    """Why it can't be the exam of the card; None if it can."""
    if not isinstance(exam, dict) or exam.get("format") != FORMAT:
        return f"its format is not {FORMAT}"
    if exam.get("card") != manifest.name:
        return f"it is of card {str(exam.get('card'))[:100]!r}, not of {manifest.name!r}"
    own = exam.get("own")
    if not isinstance(own, dict):
        return "it has no result on the card's own corpus"
    if own.get("sha256") != manifest.training.corpus_sha256:
        return "it is of another corpus than the card's"
    return _run_fault(own) or _factuality_fault(own, exam)


def _run_fault(run: Mapping[str, Any]) -> str | None:
    questions, digest = run.get("questions"), run.get("questions_sha256")
    if type(questions) is not int or questions < 1:
        return f"questions is {str(questions)[:40]}, but must be 1 or more"
    if not isinstance(digest, str) or not SHA256.fullmatch(digest):
        return "questions_sha256 is not a sha256"
    if fault := _mean_fault(run.get("recall"), "recall", questions):
        return fault
    right = run["recall"]["mean"] * questions
    if abs(right - round(right)) > questions * ROUNDING:
        return f"a recall of {run['recall']['mean']:g} is not a share of {questions} questions"
    faithfulness = run.get("faithfulness")
    return None if faithfulness is None else _scores_fault(faithfulness, "faithfulness")


def _factuality_fault(run: Mapping[str, Any], exam: Mapping[str, Any]) -> str | None:
    factuality = run.get("factuality")
    if factuality is None:
        return None
    digest = exam.get("evidence_sha256")
    if not exam.get("evidence") or not isinstance(digest, str) or not SHA256.fullmatch(digest):
        return "it has a factuality, but names no evidence with its sha256"
    return _scores_fault(factuality, "factuality")


def _scores_fault(found: object, name: str) -> str | None:
    """Why scores and their mean can't be right."""
    scores = _object(found).get("scores")
    if not isinstance(scores, list) or any(_share(score) is None for score in scores):
        return f"{name} has no list of scores between 0 and 1"
    mean = _object(found).get("mean")
    if not scores:
        return None if mean is None else f"{name} has a mean without scores"
    if fault := _mean_fault(mean, name, len(scores)):
        return fault
    expected, given = sum(scores) / len(scores), _object(mean)["mean"]
    return None if abs(expected - given) <= ROUNDING else f"the mean of {name} is not that of its scores"


def _mean_fault(found: object, name: str, count: int) -> str | None:
    """Why a mean with its interval can't be right."""
    low, mean, high = (_share(_object(found).get(key)) for key in ("low", "mean", "high"))
    if low is None or mean is None or high is None:
        return f"{name} has no mean with an interval between 0 and 1"
    if not low <= mean <= high or (low == high and count <= MOST_QUESTIONS):
        return f"the interval of {name} can't be right: {low:g} to {high:g} around {mean:g}"
    return None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _share(value: object) -> float | None:
    """The value if it is a number in [0, 1]."""
    number = type(value) in {int, float} and 0 <= value <= 1  # type: ignore[operator]
    return float(value) if number else None  # type: ignore[arg-type]
