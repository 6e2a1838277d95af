"""Asks what a run has no answer to on a Ray cluster; the run in the hub is what an interrupted one goes on from."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from kcard.api.eval_piece import eval_piece
from kcard.batches import batched, questions_together
from kcard.bulk.mapping import device_there, workers
from kcard.bulk.options import RayOptions
from kcard.errors import UsageError
from kcard.evaluation.runs.result import Result
from kcard.evaluation.runs.runner import NOT_ASKED, Key
from kcard.evaluation.runs.scoring import failed
from kcard.json_values import build, parse

if TYPE_CHECKING:
    from kcard.api.eval_plan import Prepared
    from kcard.bulk.piece import Outcome
    from kcard.evaluation.runs.run import Run
    from kcard.evaluation.runs.storage import RunStorage

__all__ = ["ask_on_cluster"]

GIVE_UP = 3  # so many pieces in a row without an answer are the endpoint's failure


def ask_on_cluster(
    prepared: "Prepared",
    run: "Run",
    storage: "RunStorage",
    missing: Sequence[Key],
    cluster: RayOptions,
    report: Callable[[int], None],
) -> None:
    """Ask these questions of the run, in the batches in which one process would, and store the results.

    `report` is called with how many are done. A piece that fails is results with its error; after GIVE_UP pieces
    without an answer the rest is not asked. Raises UsageError for an LLM that is an object, and ClusterError.
    """
    options = prepared.options
    if not isinstance(options.llm, str | None):
        raise UsageError("workers can't be given an LLM that is an object: name it, as in llm='openai:MODEL'")
    left = dict.fromkeys(missing)
    chunks = _chunks(missing, questions_together(options.concurrency))
    paths, device = [task.path for task in prepared.plan.tasks], device_there(cluster, options.device)
    pieces = [eval_piece(run, paths, device, chunk) for chunk in chunks]
    asked = {piece.key: chunk for piece, chunk in zip(pieces, chunks, strict=True)}
    streak = 0
    with (
        workers(cluster, options.device, reuse=True) as mapper,
        closing(mapper.map(pieces)) as outcomes,
    ):
        for outcome in outcomes:
            chunk = asked[outcome.key]
            results = _results(outcome, prepared, chunk)
            storage.append(run, results)
            for key in chunk:
                del left[key]
            report(len(missing) - len(left))
            streak = streak + 1 if all(result.error for result in results) else 0
            if streak == GIVE_UP:
                break
    storage.append(run, [_failed(prepared, key, NOT_ASKED) for key in left])


def _chunks(missing: Sequence[Key], size: int) -> list[list[Key]]:
    """The questions, `size` of the same task and setting at a time."""
    parts: dict[tuple[str, str], list[Key]] = {}
    for key in missing:
        parts.setdefault(key[:2], []).append(key)
    return [chunk for part in parts.values() for chunk in batched(part, size)]


def _results(outcome: "Outcome", prepared: "Prepared", chunk: Sequence[Key]) -> list[Result]:
    if outcome.error:
        return [_failed(prepared, key, outcome.error) for key in chunk]
    return [build(Result, parse(text)) for text in outcome.result]


def _failed(prepared: "Prepared", key: Key, error: str) -> Result:
    task, setting, number = key
    item = next(item for item in prepared.tasks[task].items if item.id == number)
    return failed(task, setting, item, error, ())
