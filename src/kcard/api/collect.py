"""Collecting records: each question answered without cards and with them, and scored both ways (SKR, section 3.1)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.answer import Answer
from kcard.errors import LLMError, UsageError
from kcard.evaluation.entries import entries
from kcard.evaluation.gates.answer_scores import METRICS, Metric
from kcard.evaluation.question_file import read_questions
from kcard.integrators.batch import QuestionTotals, answer_file, earlier_lines
from kcard.integrators.pipeline import Pipeline
from kcard.question import Question
from kcard.rows import Row

if TYPE_CHECKING:
    from kcard.protocols import LLM

__all__ = ["Collection", "collect"]

# What a questions file may say beside question and answers, and its names in the data sets of the papers.
CARRIED: Mapping[str, tuple[str, ...]] = {
    "label": ("label",),
    "relation": ("relation", "prop"),
    "popularity": ("popularity", "s_pop"),
}


@dataclass(frozen=True)
class _BothWays:
    """One question, answered twice."""

    without: Answer
    with_: Answer
    accepted: Sequence[str]
    metric: Metric

    def to_json(self) -> Row:
        said = {"without": self.without.answer, "with": self.with_.answer}
        scores = {
            f"{name}_{way}": round(score(text, self.accepted), 6)
            for name, score in METRICS.items()
            for way, text in said.items()
        }
        return {
            **{f"correct_{way}": scores[f"{self.metric}_{way}"] for way in said},
            **{f"answer_{way}": text for way, text in said.items()},
            "scores": scores,
            "calls": self.without.calls + self.with_.calls,
        }


class Collection:
    """A run of questions: `rows` of them, `done` by an earlier run. Made before any question is asked.

    questions  a file of questions with answers (kcard.evaluation.question_file); label, relation (or prop) and
               popularity (or s_pop) are carried over
    output     the file of records
    metric     what correct_without and correct_with are: substring, em, f1 or accuracy; all four are kept as scores
    resume     go on with what an earlier run left in `output`
    options    those of Pipeline; the gate is always, since every question is asked with cards

    Raises UsageError for a wrong argument or file, and what Pipeline raises.
    """

    def __init__(
        self,
        questions: Path | str,
        output: Path | str,
        *,
        metric: Metric = "substring",
        resume: bool = False,
        **options: Any,
    ) -> None:
        if metric not in METRICS:
            raise UsageError(f"metric {metric!r} is unknown: choose one of {', '.join(METRICS)}")
        if options.get("mode") == "direct" or "gate" in options:
            raise UsageError("records need answers with cards: leave out mode direct and gate")
        self.output, self._metric = Path(output).expanduser(), metric
        if Path(questions).expanduser().resolve() == self.output.resolve():
            raise UsageError(f"--output {output} is the questions file: name another, or it would be lost")
        self.rows = _rows(Path(questions).expanduser(), metric)
        self._accepted = {row["question"]: row["answers"] for row in self.rows}
        self._earlier = earlier_lines(self.rows, self.output, resume)
        self.done = sum("error" not in line for line in self._earlier)
        self._with = Pipeline(**options, gate="always")
        shared = {key: options[key] for key in ("examples", "report", "concurrency") if key in options}
        self._without = Pipeline(mode="direct", llm=self.llm, **shared)

    @property
    def llm(self) -> "LLM":
        return self._with.llm

    def run(self, report: Callable[[int], None] | None = None) -> QuestionTotals:
        """Ask what is missing; each record is on disk before the next question is asked.

        A question that fails becomes a line with its error, which resuming asks again. Raises LLMError after many
        failures in a row.
        """
        return answer_file(
            self.rows, self.output, self._outcomes, report, self._earlier, self._with.concurrency
        )

    def _outcomes(self, questions: Sequence[str | Question]) -> Iterator[_BothWays | LLMError]:
        ways = zip(self._without.outcomes(questions), self._with.outcomes(questions), strict=True)
        for without, with_ in ways:
            if isinstance(without, LLMError):
                yield without
            elif isinstance(with_, LLMError):
                yield with_
            else:
                yield _BothWays(without, with_, self._accepted[with_.question], self._metric)


def collect(
    questions: Path | str,
    output: Path | str,
    *,
    metric: Metric = "substring",
    resume: bool = False,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> QuestionTotals:
    """Write records of how an LLM answers without cards and with them: the Python twin of `kcard gate collect`.

    Arguments are those of Collection; `progress` is called with how many questions are done.
    """
    return Collection(questions, output, metric=metric, resume=resume, **options).run(progress)


def _rows(path: Path, metric: Metric) -> list[Row]:
    """One row a question, without answers as yet."""
    known = {question.text: question.answers for question in read_questions(path).questions}
    extras = _beside(entries(path, "questions"))
    return [
        {"question": text, "answers": list(answers), **extras.get(text, {}), "metric": metric}
        for text, answers in known.items()
    ]


def _beside(found: Iterable[tuple[str, Row]]) -> dict[str, Row]:
    """What the file says of each question beside its answers; of a question that it holds twice, the first."""
    extras: dict[str, Row] = {}
    for where, entry in found:
        row = {}
        for key, names in CARRIED.items():
            value = next((entry[name] for name in names if entry.get(name) is not None), None)
            if value is not None:
                row[key] = _popularity(value, where) if key == "popularity" else str(value)
        extras.setdefault(entry["question"].strip(), row)
    return extras


def _popularity(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{where}: popularity is {value!r}, expected a number") from None
