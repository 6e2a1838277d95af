"""ask_on_cluster: many questions from a file to a file, on a Ray cluster."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kcard.api.ask_piece import ask_piece
from kcard.api.eval_asking import SILENT, Told
from kcard.batches import batched, questions_together
from kcard.bulk.journal import Journal, opened_journal
from kcard.bulk.mapping import device_there, workers
from kcard.bulk.options import RayOptions
from kcard.bulk.piece import Mapper, Outcome, digest
from kcard.errors import UsageError
from kcard.integrators.batch import (
    GIVE_UP,
    QuestionTotals,
    earlier_lines,
    read_questions,
    write_answers,
)
from kcard.integrators.options import AskOptions
from kcard.rows import Row

__all__ = ["AnsweredFile", "ask_on_cluster"]

FAILED_PIECES = 3  # so many in a row are the endpoint's failure, not a worker's


@dataclass(frozen=True)
class AnsweredFile:
    """What a run came to.

    questions  of the file
    earlier    how many of them an earlier run had answered
    totals     of this run
    """

    questions: int
    earlier: int
    totals: QuestionTotals


def ask_on_cluster(
    source: Path,
    target: Path,
    options: AskOptions | None = None,
    *,
    cluster: RayOptions,
    resume: bool = False,
    batch: int | None = None,
    told: Told = SILENT,
    **given: Any,
) -> AnsweredFile:
    """Answer every question of a file; `kcard ask --input SOURCE --output TARGET --ray ADDRESS` does the same.

    options  those that are given by name take the place of its own
    cluster  where to ask
    resume   ask only what is missing in `target`, or failed
    batch    questions of a piece; None: 16, or 4 for each request at a time

    Line i of `target` belongs to line i of `source`; a question that fails is a line with its `error`. Answers that
    come before those of earlier lines are kept in TARGET.journal, which is deleted in the end. Raises UsageError,
    ClusterError, and LLMError after many failures in a row; what is answered is kept.
    """
    options = replace(options or AskOptions(), **given)
    if not isinstance(options.llm, str | None):
        raise UsageError("workers can't be given an LLM that is an object: name it, as in llm='openai:MODEL'")
    options = replace(options, device=device_there(cluster, options.device))
    rows = read_questions(source)
    earlier = earlier_lines(rows, target, resume)
    done = sum("error" not in line for line in earlier)
    if done:
        told.note(f"{done} of {len(rows)} questions are already answered")
    size = batch or questions_together(options.concurrency)
    digests = {str(i): digest(row) for i, row in enumerate(rows)}
    path = target.with_name(f"{target.name}.journal")
    with ExitStack() as opened:
        mapper = opened.enter_context(workers(cluster, options.device, reuse=True))
        journal = opened.enter_context(opened_journal(path, digests, resume))

        def results(wanted: Sequence[int]) -> Iterator[tuple[int, Row]]:
            return opened.enter_context(closing(_in_order(rows, wanted, size, options, mapper, journal)))

        give_up = max(GIVE_UP, FAILED_PIECES * size)
        totals = write_answers(
            rows, target, results, lambda now: told.progress(now, len(rows)), earlier, give_up
        )
    path.unlink()
    return AnsweredFile(len(rows), done, totals)


def _in_order(
    rows: Sequence[Row],
    wanted: Sequence[int],
    size: int,
    options: AskOptions,
    mapper: Mapper,
    journal: Journal,
) -> Generator[tuple[int, Row], None, None]:
    """(row number, answer or error) of each wanted row, in order: from the journal, or asked, `size` rows a piece."""
    known: dict[int, Row] = {int(key): outcome.result for key, outcome in journal.done.items()}
    missing = [i for i in wanted if i not in known]
    chunks = {str(chunk[0]): chunk for chunk in batched(missing, size)}
    pieces = [ask_piece(key, options, [rows[i] for i in chunk]) for key, chunk in chunks.items()]
    with closing(mapper.map(pieces)) as outcomes:
        for i in wanted:
            while i not in known:
                outcome = next(outcomes)
                chunk = chunks[outcome.key]
                found = [{"error": outcome.error}] * len(chunk) if outcome.error else outcome.result
                answers = dict(zip(chunk, found, strict=True))
                journal.add(*(Outcome(str(n), row) for n, row in answers.items() if "error" not in row))
                known |= answers
            yield i, known.pop(i)
