"""Answer the questions of a file, JSONL or CSV, into another file; a failed question affects only its own line.

Line i of the output belongs to line i of the input. Every line is on disk before the next question is asked, so a run
that was interrupted, even in the middle of a line, can be resumed.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kcard.batching import (
    MAX_FAILED_BATCHES,
    MAX_FAILED_QUESTIONS,
    QUESTIONS,
    FailureStreak,
    batched,
    questions_together,
)
from kcard.cluster import RayOptions, json_ready, mapped, worker_device
from kcard.errors import KcardError, LLMError, UsageError
from kcard.events import Event, OnEvent, ignore
from kcard.integrators.options import AskOptions
from kcard.io import Row, append_rows, earlier_rows, json_line, read_rows, replacing
from kcard.questions import checked, choices_of
from kcard.trace import add_counts
from kcard.types import Answer, Question

if TYPE_CHECKING:
    from kcard.integrators.pipeline import Pipeline

RESULT_KEYS = {field.name for field in fields(Answer)} - {"question"} | {"error"}
MISSING_QUESTION = "the key 'question' must hold a non-empty text"


class JsonAnswer(Protocol):
    """Anything that serializes to a JSON row, such as an Answer."""

    def to_json(self) -> Row: ...


Answers = Callable[[Sequence[str | Question]], Iterable[JsonAnswer | KcardError]]


@dataclass(frozen=True)
class QuestionTotals:
    """What a run cost. Tokens are None if they are unknown for some answer."""

    answered: int = 0
    failed: int = 0
    calls: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0

    def with_line(self, line: Row) -> "QuestionTotals":
        if "error" in line:
            return replace(self, failed=self.failed + 1)
        used = line.get("usage", {})
        return QuestionTotals(
            self.answered + 1,
            self.failed,
            self.calls + line.get("calls", 0),
            add_counts([self.tokens_in, used.get("tokens_in")]),
            add_counts([self.tokens_out, used.get("tokens_out")]),
        )


def read_questions(path: Path) -> list[Row]:
    """Return the rows of a JSONL or .csv file. Raises UsageError, which names the line, for a line that is not a JSON
    object, and for a table without a column "question"."""
    rows = [row for _, row in read_rows(path, "--input")]
    if not rows:
        raise UsageError(f"--input {path} contains no questions")
    if path.suffix.lower() == ".csv" and "question" not in rows[0]:
        raise UsageError(f"--input {path} has no column 'question'; its columns are {', '.join(rows[0])}")
    return rows


def earlier_lines(rows: Sequence[Row], output: Path, resume: bool) -> list[Row]:
    """Return the rows that an earlier run left in `output`; see kcard.io.earlier_rows."""
    return list(earlier_rows(output, rows, resume, RESULT_KEYS))


def answer_file(
    rows: Sequence[Row],
    output: Path,
    answers: Answers,
    on_event: OnEvent = ignore,
    earlier: Sequence[Row] = (),
    batch: int = QUESTIONS,
) -> QuestionTotals:
    """Write each row, its keys passed through in order, with its answer or an `error`.

    answers  Pipeline.outcomes, or a function like it
    earlier  the rows that earlier_lines returned; of these only those with an `error` are asked again
    batch    the number of questions that `answers` gets at a time

    Raises LLMError, with everything so far on disk, after MAX_FAILED_QUESTIONS consecutive failures.
    """

    def results(numbers: Sequence[int]) -> Generator[tuple[int, Row], None, None]:
        for chunk in batched(numbers, batch):
            yield from zip(chunk, _answered_rows([rows[i] for i in chunk], answers), strict=True)

    return _write_answers(rows, output, results, on_event, earlier)


def ask_on_cluster(
    source: Path,
    target: Path,
    options: AskOptions | None = None,
    *,
    cluster: RayOptions,
    resume: bool = False,
    batch: int | None = None,
    on_event: OnEvent = ignore,
    **changes: Any,
) -> tuple[int, QuestionTotals]:
    """Answer every question of a file; `kcard ask --input SOURCE --output TARGET --ray ADDRESS` does the same.

    options  options passed by name override its values
    resume   answer only questions that are missing in `target`, or failed
    batch    questions that a worker answers together; None: 16, or 4 for each concurrent request
    on_event  called with the number of questions answered (kind asking)

    Returns the number of questions in the file and the totals of this run. Raises UsageError, ClusterError, and
    LLMError after many consecutive failures; answers so far are kept.
    """
    options = AskOptions.of(options, changes)
    ready = json_ready(vars(options) | {"device": worker_device(cluster, options.device)})
    rows = read_questions(source)
    size = batch or questions_together(options.concurrency)

    def results(numbers: Sequence[int]) -> Generator[tuple[int, Row], None, None]:
        chunks = [*batched(numbers, size)]
        pieces: list[Row] = []
        for chunk in chunks:
            pieces.append({"options": ready, "rows": [rows[i] for i in chunk]})
        answers: dict[int, Row] = {}
        with closing(mapped(_answer_piece, pieces, cluster, options.device)) as outcomes:
            for i in numbers:
                while i not in answers:
                    nth, outcome = next(outcomes)
                    chunk = chunks[nth]
                    answers |= zip(chunk, outcome.get("result") or [outcome] * len(chunk), strict=True)
                yield i, answers.pop(i)

    give_up = max(MAX_FAILED_QUESTIONS, MAX_FAILED_BATCHES * size)
    earlier = earlier_lines(rows, target, resume)
    return len(rows), _write_answers(rows, target, results, on_event, earlier, give_up)


def _answer_piece(options: Row, rows: Sequence[Row]) -> list[Row]:
    return [*_answered_rows(rows, _worker_pipeline(json.dumps(options)).outcomes)]


@lru_cache(maxsize=1)
def _worker_pipeline(options: str) -> "Pipeline":
    """Return the pipeline of a worker, which keeps it, with its models, for its next questions."""
    from kcard.integrators.pipeline import Pipeline

    values = json.loads(options)
    if values["examples"] is not None:
        values["examples"] = Path(values["examples"])
    return Pipeline(AskOptions(**values))


def _write_answers(
    rows: Sequence[Row],
    output: Path,
    results: Callable[[Sequence[int]], Generator[tuple[int, Row], None, None]],
    on_event: OnEvent,
    earlier: Sequence[Row],
    give_up: int = MAX_FAILED_QUESTIONS,
) -> QuestionTotals:
    """Write the rows with the answers that `results` gives.

    results  called with the numbers of the rows to answer; yields each number, in this order, with an answer or `error`
    give_up  the number of consecutive failures after which LLMError is raised
    """
    lines, totals, streak = list(earlier), QuestionTotals(), FailureStreak(give_up)
    failed = [i for i, line in enumerate(lines) if "error" in line]
    done = len(lines) - len(failed)
    with closing(results([*failed, *range(len(lines), len(rows))])) as outcomes:
        for i, result in outcomes:
            line = dict(rows[i])
            line.pop("error", None)
            line |= result
            if i < len(lines):
                lines[i] = line
                with replacing(output) as stream:
                    stream.writelines(map(json_line, lines))
            else:
                append_rows(output, [line])
            totals = totals.with_line(line)
            done += 1
            on_event(Event("asking", done=done, total=len(rows)))
            is_question = not isinstance(_question(rows[i]), UsageError)
            if streak.record("error" in result and is_question):
                raise LLMError(
                    f"stopped after {give_up} consecutive failures; last error: {result['error']} "
                    f"(the answers so far are in {output}; continue with --resume)"
                )
    return totals


def _answered_rows(rows: Sequence[Row], answers: Answers) -> Iterator[Row]:
    """Yield the answer to each row, or its `error`."""
    parsed = [_question(row) for row in rows]
    questions = [question for question in parsed if isinstance(question, Question)]
    outcomes = iter(answers(questions))
    for question in parsed:
        outcome = next(outcomes) if isinstance(question, Question) else question
        if isinstance(outcome, KcardError):
            yield {"error": str(outcome)}
        else:
            yield outcome.to_json()


def _question(row: Row) -> Question | UsageError:
    """Return the question of a row, or the error if it has none that can be asked."""
    text = row.get("question")
    if not isinstance(text, str) or not text.strip():
        return UsageError(MISSING_QUESTION)
    try:
        choices = choices_of(row.get("choices"))
        return checked(Question(text, choices))
    except UsageError as error:
        return error
