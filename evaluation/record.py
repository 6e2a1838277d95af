"""What an exam found, as values, and exam.json, which travels with the card."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kcard.answer import Source
from kcard.errors import CardError
from kcard.evaluation.metrics import interval

__all__ = ["EXAM", "Distribution", "Exam", "Judged", "Mean", "read_exam"]

EXAM = "exam.json"
FORMAT = 1
DIGITS = 4


@dataclass(frozen=True)
class Mean:
    """A mean in [0, 1] and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], seed: int = 0) -> "Mean | None":
        """None for no values."""
        if not values:
            return None
        low, high = interval(values, seed)
        return cls(round(sum(values) / len(values), DIGITS), round(low, DIGITS), round(high, DIGITS))


@dataclass(frozen=True)
class Distribution:
    """Checker scores in [0, 1], one a passage; `unknown` passages have none: no evidence was found."""

    scores: tuple[float, ...]
    mean: Mean | None
    unknown: int = 0

    @classmethod
    def of(cls, scores: Sequence[float | None], seed: int = 0) -> "Distribution":
        known = [score for score in scores if score is not None]
        shown = tuple(round(score, DIGITS) for score in known)
        return cls(shown, Mean.of(known, seed), len(scores) - len(known))


@dataclass(frozen=True)
class Judged:
    """A passage that the card wrote in the exam. `evidence`: the text that the ranking score comes from."""

    question: str
    answer: str
    text: str
    recalled: bool
    faithfulness: float | None = None
    factuality: float | None = None
    evidence: Source | None = None


@dataclass(frozen=True)
class Exam:
    """What a card knows of its own corpus, and how far what it writes can be trusted.

    recall        share of `questions` whose answer occurs in the passage that the card wrote, greedily
    faithfulness  its passages against its own corpus
    factuality    its passages against independent evidence, which is named; None without any. The two are
                  never mixed
    asked         where the questions came from: forms held out of training, or given
    ranked_by     the score by which `best` and `worst` were chosen
    """

    card: str
    questions: int
    recall: Mean | None
    faithfulness: Distribution
    factuality: Distribution | None
    checker: str
    asked: str
    seed: int = 0
    evidence: str | None = None
    evidence_sha256: str | None = None
    corpus_sha256: str = ""
    ranked_by: str = "faithfulness"
    best: tuple[Judged, ...] = ()
    worst: tuple[Judged, ...] = ()
    format: int = FORMAT

    def to_json(self) -> str:
        """Canonical JSON, so that the same exam has the same bytes."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = EXAM) -> "Exam":
        """Raises CardError for anything that is not an exam of this format."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise CardError(
                    f"{where} is not an exam of format {FORMAT}: examine the card again (kcard exam)"
                )
            values = {
                **data,
                "recall": _mean(data["recall"]),
                "faithfulness": _distribution(data["faithfulness"]),
                "factuality": None if data["factuality"] is None else _distribution(data["factuality"]),
                "best": tuple(_judged(item) for item in data["best"]),
                "worst": tuple(_judged(item) for item in data["worst"]),
            }
            return cls(**values)
        except (ValueError, TypeError, KeyError) as error:
            raise CardError(
                f"{where} is not an exam: {error!r}; examine the card again (kcard exam)"
            ) from error

    def summary(self) -> str:
        """One sentence for the user."""
        if not self.questions:
            return f"{self.card}: no question could be made of its corpus, so there is no exam result"
        factuality = "not measured (no independent evidence)"
        if self.factuality is not None:
            factuality = f"{_shown(self.factuality.mean)} against {self.evidence}"
        return (
            f"{self.card}: recall {_shown(self.recall)} on {self.questions} questions ({self.asked}), "
            f"faithfulness to its own corpus {_shown(self.faithfulness.mean)}, factuality {factuality}"
        )


def read_exam(folder: Path) -> Exam | None:
    """The exam that travels with a card; None where it has none. Raises CardError for a malformed one."""
    path = folder / EXAM
    return Exam.from_json(path.read_text(encoding="utf-8"), str(path)) if path.exists() else None


def _mean(data: Any) -> Mean | None:
    return None if data is None else Mean(**data)


def _distribution(data: Any) -> Distribution:
    return Distribution(tuple(data["scores"]), _mean(data["mean"]), data["unknown"])


def _judged(data: Any) -> Judged:
    source = data["evidence"]
    return Judged(**{**data, "evidence": None if source is None else Source(**source)})


def _shown(mean: Mean | None) -> str:
    return "unknown" if mean is None else f"{mean.mean:.2f} [{mean.low:.2f}, {mean.high:.2f}]"
