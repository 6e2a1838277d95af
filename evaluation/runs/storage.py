"""Runs in the hub's database. The hub keeps texts; here they become values, and values texts."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from kcard.errors import HubError
from kcard.evaluation.runs.result import Result
from kcard.evaluation.runs.run import Run, RunPlan
from kcard.json_values import build, parse

if TYPE_CHECKING:
    from kcard.hub.repositories.runs import Runs, StoredRun

__all__ = ["RunStorage"]


class RunStorage:
    """The runs of a hub: RunStorage(Hub().runs)."""

    def __init__(self, runs: "Runs") -> None:
        self._runs = runs

    def create(self, plan: RunPlan) -> Run:
        """Store a new run, without results."""
        return _run(self._runs.create(json.dumps(asdict(plan), ensure_ascii=False), plan.planned))

    def append(self, run: Run, results: Iterable[Result]) -> None:
        """Store results, all or none; an earlier result of the same question and setting is replaced."""
        from kcard.hub.repositories.runs import StoredResult

        self._runs.append(
            run.number,
            {
                run.plan.position(result.task, result.setting, result.id): StoredResult(
                    json.dumps(asdict(result), ensure_ascii=False), bool(result.error)
                )
                for result in results
            },
        )

    def list(self) -> "list[Run]":
        """Every run, oldest first."""
        return [_run(stored) for stored in self._runs.list()]

    def get(self, number: int) -> Run:
        """Raises HubError for an unknown run."""
        return _run(self._runs.get(number))

    def results(self, number: int) -> Iterator[Result]:
        """The stored results of a run: task by task, of each setting by setting, in the order of the questions."""
        for position, stored in self._runs.results(number):
            try:
                yield build(Result, parse(stored.record))
            except (ValueError, TypeError) as error:
                raise HubError(f"run {number}, result {position} can't be read: {error}") from error

    def delete(self, number: int) -> None:
        """Delete a run with its results. Raises HubError for an unknown run."""
        self._runs.delete(number)


def _run(stored: "StoredRun") -> Run:
    try:
        plan = build(RunPlan, parse(stored.plan))
    except (ValueError, TypeError) as error:
        raise HubError(f"run {stored.number} can't be read: {error}") from error
    started = stored.started.isoformat(timespec="seconds")
    return Run(stored.number, started, plan, stored.answered, stored.failed)
