"""Many questions from a file to a file: one JSON object a line, or CSV; a failed question costs its own line only.

Line i of the output belongs to line i of the input. Every line is on disk before the next question is asked, so a run
that was cut off, even in the middle of a line, goes on where it stopped.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kcard.batching import QUESTIONS, batched, questions_together
from kcard.cluster import RayOptions, device_there, json_ready, mapped
from kcard.errors import KcardError, LLMError, UsageError
from kcard.integrators.options import AskOptions
from kcard.io import Row, append_rows, earlier_rows, json_line, read_rows, replacing
from kcard.types import Answer, Question, checked, choices_of

if TYPE_CHECKING:
    from kcard.integrators.pipeline import Pipeline

__all__ = [
    "GIVE_UP",
    "QuestionTotals",
    "answer_file",
    "ask_on_cluster",
    "asked_together",
    "earlier_lines",
    "read_questions",
]

PASSAGES = 256_000_000  # bytes that the passages of a batch may take
DOCUMENT, TOKEN = 2000, 6  # bytes of a passage with its marks, and of a token more
GIVE_UP = 16  # so many failures in a row are the endpoint's, not the questions'
FAILED_PIECES = 3  # so many batches of a cluster in a row are the endpoint's failure, not a worker's
RESULT = {field.name for field in fields(Answer)} - {"question"} | {"error"}
NO_QUESTION = "the key 'question' must hold a non-empty text"


def asked_together(options: AskOptions, cards: int) -> int:
    """How many questions at a time cards that take turns are best asked: as many as the memory for passages allows.

    cards  how many there are
    """
    top_down = 3 if options.margin else 1
    cards_asked = {"top-down": top_down * options.max_iterations, "hybrid": 3 * options.max_iterations}.get(
        options.mode, options.max_cards
    )
    document = DOCUMENT + options.card_tokens * TOKEN
    return max(QUESTIONS, PASSAGES // (min(cards, cards_asked) * options.n1 * document))


class JsonAnswer(Protocol):
    """What a question came to, such as an Answer."""

    def to_json(self) -> Row: ...


Answers = Callable[[Sequence[str | Question]], Iterable[JsonAnswer | KcardError]]


@dataclass(frozen=True)
class QuestionTotals:
    """What a run cost. Tokens are None where they are not known of every answer."""

    answered: int = 0
    failed: int = 0
    calls: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0

    def with_line(self, line: Row) -> "QuestionTotals":
        used = line.get("usage", {})
        failed = "error" in line
        return QuestionTotals(
            self.answered + (not failed),
            self.failed + failed,
            self.calls + line.get("calls", 0),
            self.tokens_in if failed else _sum(self.tokens_in, used.get("tokens_in")),
            self.tokens_out if failed else _sum(self.tokens_out, used.get("tokens_out")),
        )


def read_questions(path: Path) -> list[Row]:
    """Every line of a JSONL file, or every row of a .csv; UsageError names the first line that is not a JSON object,
    and a table without a column of questions."""
    rows = [row for _, row in read_rows(path, "--input")]
    if not rows:
        raise UsageError(f"--input {path} contains no questions")
    if path.suffix.lower() == ".csv" and "question" not in rows[0]:
        raise UsageError(f"--input {path} has no column 'question'; its columns are {', '.join(rows[0])}")
    return rows


def earlier_lines(rows: Sequence[Row], output: Path, resume: bool) -> list[Row]:
    """What an earlier run left in `output`; see kcard.io.earlier_rows."""
    return list(earlier_rows(output, rows, resume, RESULT))


def answer_file(
    rows: Sequence[Row],
    output: Path,
    answers: Answers,
    report: Callable[[int], None] | None = None,
    earlier: Sequence[Row] = (),
    batch: int = QUESTIONS,
) -> QuestionTotals:
    """Write each row, its keys passed through in order, with its answer or an `error`.

    `answers`: Pipeline.outcomes, or what is like it; it may raise where it fails. `earlier`: what earlier_lines found;
    of these only rows with an `error` are asked again. `batch`: questions that `answers` gets at a time.
    Raises LLMError, with everything so far on disk, after GIVE_UP failures in a row.
    """
    return _write(rows, output, lambda wanted: _results(rows, wanted, answers, batch), report, earlier)


def ask_on_cluster(
    source: Path,
    target: Path,
    options: AskOptions | None = None,
    *,
    cluster: RayOptions,
    resume: bool = False,
    batch: int | None = None,
    report: Callable[[int, int], None] = lambda _, __: None,
    **changes: Any,
) -> tuple[int, QuestionTotals]:
    """Answer every question of a file; `kcard ask --input SOURCE --output TARGET --ray ADDRESS` does the same.

    options  those that are given by name take the place of its own
    resume   ask only what is missing in `target`, or failed
    batch    questions that a worker asks together; None: 16, or 4 for each request at a time
    report   called with (questions answered, of how many)

    Returns how many questions the file has, and what this run came to. Raises UsageError, ClusterError, and LLMError
    after many failures in a row; what is answered is kept.
    """
    options = replace(options or AskOptions(), **changes)
    ready = json_ready(vars(options) | {"device": device_there(cluster, options.device)})
    rows = read_questions(source)
    size = batch or questions_together(options.concurrency)

    def results(numbers: Sequence[int]) -> Generator[tuple[int, Row], None, None]:
        chunks = [*batched(numbers, size)]
        pieces: list[Row] = [{"options": ready, "rows": [rows[i] for i in chunk]} for chunk in chunks]
        answers: dict[int, Row] = {}
        with closing(mapped(_answers, pieces, cluster, options.device)) as outcomes:
            for i in numbers:
                while i not in answers:
                    nth, outcome = next(outcomes)
                    chunk = chunks[nth]
                    answers |= zip(chunk, outcome.get("result") or [outcome] * len(chunk), strict=True)
                yield i, answers.pop(i)

    give_up = max(GIVE_UP, FAILED_PIECES * size)
    earlier = earlier_lines(rows, target, resume)
    return len(rows), _write(rows, target, results, lambda done: report(done, len(rows)), earlier, give_up)


def _answers(options: Row, rows: Sequence[Row]) -> list[Row]:
    return [*_answered_rows(rows, _pipeline(json.dumps(options)).outcomes)]


@lru_cache(maxsize=1)
def _pipeline(options: str) -> "Pipeline":
    """What answers; a worker keeps it, and so the models, for its next questions."""
    from kcard.integrators.pipeline import Pipeline

    values = json.loads(options)
    examples = values["examples"]
    return Pipeline(AskOptions(**values | {"examples": None if examples is None else Path(examples)}))


def _write(
    rows: Sequence[Row],
    output: Path,
    results: Callable[[Sequence[int]], Generator[tuple[int, Row], None, None]],
    report: Callable[[int], None] | None,
    earlier: Sequence[Row],
    give_up: int = GIVE_UP,
) -> QuestionTotals:
    """`answer_file`, of answers that come from elsewhere.

    `results`: called with the numbers of the rows that are to be asked; gives each of them, in this order, with its
    answer or `error`. `give_up`: so many failures in a row raise LLMError.
    """
    lines, totals = list(earlier), QuestionTotals()
    failed = [i for i, line in enumerate(lines) if "error" in line]
    streak, done = 0, len(lines) - len(failed)
    with closing(results([*failed, *range(len(lines), len(rows))])) as outcomes:
        for i, result in outcomes:
            line = {**{key: value for key, value in rows[i].items() if key != "error"}, **result}
            if i < len(lines):
                lines[i] = line
                with replacing(output) as stream:
                    stream.writelines(map(json_line, lines))
            else:
                append_rows(output, [line])
            totals, done = totals.with_line(line), done + 1
            if report:
                report(done)
            is_question = not isinstance(_question(rows[i]), UsageError)
            streak = streak + 1 if "error" in result and is_question else 0
            if streak == give_up:
                raise LLMError(
                    f"{streak} questions failed in a row, the last one: {result['error']} "
                    f"(the answers so far are in {output}; continue with --resume)"
                )
    return totals


def _results(
    rows: Sequence[Row], numbers: Sequence[int], answers: Answers, size: int
) -> Generator[tuple[int, Row], None, None]:
    """(row number, answer or error) of each wanted row, in order; cards write for `size` rows at a time."""
    for chunk in batched(numbers, size):
        yield from zip(chunk, _answered_rows([rows[i] for i in chunk], answers), strict=True)


def _answered_rows(rows: Sequence[Row], answers: Answers) -> Iterator[Row]:
    """The answer to each row, or its `error`.

    Where `answers` raises, the halves of the rest are asked, so that one bad question does not cost the others.
    """
    results: Iterator[JsonAnswer | KcardError] | None = None
    for n, row in enumerate(rows):
        question = _question(row)
        if isinstance(question, UsageError):
            yield _failed(question)
            continue
        try:
            if results is None:
                questions = [_question(r) for r in rows[n:]]
                results = iter(answers([q for q in questions if not isinstance(q, UsageError)]))
            result = next(results)
        except KcardError as error:
            if len(rows) == 1:
                yield _failed(error)
                return
            rest = rows[n:]
            for half in batched(rest, -(-len(rest) // 2)):
                yield from _answered_rows(half, answers)
            return
        yield _failed(result) if isinstance(result, KcardError) else result.to_json()


def _failed(error: KcardError) -> Row:
    return {"error": str(error)}


def _question(row: Row) -> str | Question | UsageError:
    """What a row asks, or why it can't be asked."""
    text = row.get("question")
    if not isinstance(text, str) or not text.strip():
        return UsageError(NO_QUESTION)
    try:
        choices = choices_of(row.get("choices"))
        return checked(Question(text, choices)) if choices else text
    except UsageError as error:
        return error


def _sum(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more
