"""A piece of an evaluation, as a worker asks it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kcard.bulk.piece import Piece

if TYPE_CHECKING:
    from kcard.evaluation.runs.result import Result
    from kcard.evaluation.runs.run import Run
    from kcard.evaluation.runs.runner import Key, Runner

__all__ = ["answered", "eval_piece"]


def eval_piece(run: "Run", paths: Sequence[str], device: str, keys: "Sequence[Key]") -> Piece:
    """The piece that asks these questions of a run, which are of one task and setting.

    paths   where the tasks' files are, in the order of the plan
    device  of the models, as a worker sees it
    """
    arguments = {
        "run": run.number,
        "paths": list(paths),
        "device": device,
        "keys": [list(key) for key in keys],
    }
    return Piece(" ".join(keys[0]), f"{__name__}:answered", arguments)


def answered(run: int, paths: Sequence[str], device: str, keys: Sequence[Sequence[str]]) -> list[str]:
    """The results as JSON, in order. A worker keeps the models of a setting for its next piece."""
    runner, results = _runner(run, tuple(paths), device)
    results.kept.clear()
    runner.ask([(task, setting, question) for task, setting, question in keys])
    return [json.dumps(asdict(result), ensure_ascii=False) for result in results.kept]


class _Results:
    """The results of a piece."""

    def __init__(self) -> None:
        self.kept: list[Result] = []

    def append(self, run: "Run", results: "Sequence[Result]") -> None:
        del run
        self.kept.extend(results)


@lru_cache(maxsize=1)
def _runner(number: int, paths: tuple[str, ...], device: str) -> "tuple[Runner, _Results]":
    """What asks the questions of that run, as the hub has it. Raises what `kcard eval --resume` raises."""
    from kcard.api.eval_asking import SILENT, make_runner
    from kcard.api.evaluate import prepared_again
    from kcard.evaluation.runs.storage import RunStorage
    from kcard.hub.registry import Hub

    hub = Hub()
    run = RunStorage(hub.runs).get(number)
    prepared = prepared_again(run, hub, None, paths)
    prepared = replace(prepared, options=replace(prepared.options, device=device))
    results = _Results()
    return make_runner(prepared, run, results, hub, SILENT.note), results
