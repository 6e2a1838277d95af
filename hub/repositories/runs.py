"""Evaluation runs: what was asked and what came of it, as texts whose content evaluations know."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, case, delete, func, insert, select

from kcard.errors import HubError
from kcard.hub.records.database import Database
from kcard.hub.records.run_tables import run_results, runs
from kcard.hub.records.utc import now, utc

__all__ = ["Runs", "StoredResult", "StoredRun"]


@dataclass(frozen=True)
class StoredRun:
    """A run. Of the `planned` results, `answered` + `failed` are stored.

    `plan` is what is asked, `started` in UTC.
    """

    number: int
    started: datetime
    planned: int
    answered: int
    failed: int
    plan: str


@dataclass(frozen=True)
class StoredResult:
    """The record of one question under one setting; `failed`: it has no answer."""

    record: str
    failed: bool = False


class Runs:
    """The evaluation runs of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, plan: str, planned: int) -> StoredRun:
        """Store a new run that will have `planned` results."""
        values = {"started": now(), "planned": planned, "plan": plan}
        with self._database.write() as connection:
            number = connection.execute(insert(runs).values(values).returning(runs.c.id)).scalar_one()
            return _run(connection, int(number))

    def append(self, number: int, results: Mapping[int, StoredResult]) -> None:
        """Store results by position, all or none; one that is there is replaced. Raises HubError for an unknown run."""
        rows = [
            {
                "run_id": number,
                "position": position,
                "failed": result.failed,
                "record": zlib.compress(result.record.encode()),
            }
            for position, result in results.items()
        ]
        with self._database.write() as connection:
            _run(connection, number)
            for position in results:
                here = (run_results.c.run_id == number, run_results.c.position == position)
                connection.execute(delete(run_results).where(*here))
            if rows:
                connection.execute(insert(run_results), rows)

    def list(self) -> "list[StoredRun]":
        """Every run, oldest first."""
        with self._database.read() as connection:
            return [_stored(row) for row in connection.execute(_counted().order_by(runs.c.id))]

    def get(self, number: int) -> StoredRun:
        """Raises HubError for an unknown run."""
        with self._database.read() as connection:
            return _run(connection, number)

    def results(self, number: int) -> Iterator[tuple[int, StoredResult]]:
        """The stored results with their positions, in that order. Raises HubError for an unknown run."""
        query = select(run_results).where(run_results.c.run_id == number).order_by(run_results.c.position)
        with self._database.read() as connection:
            _run(connection, number)
            rows = list(connection.execute(query))
        for row in rows:
            yield row.position, StoredResult(zlib.decompress(row.record).decode(), row.failed)

    def delete(self, number: int) -> None:
        """Delete a run with its results. Raises HubError for an unknown run."""
        with self._database.write() as connection:
            _run(connection, number)
            connection.execute(delete(runs).where(runs.c.id == number))


def _run(connection: Connection, number: int) -> StoredRun:
    row = connection.execute(_counted().where(runs.c.id == number)).one_or_none()
    if row is None:
        raise HubError(f"run {number} not found: `kcard runs` lists the runs")
    return _stored(row)


def _counted() -> Any:
    """Runs, each with the numbers of its answered and failed results."""
    failed = func.coalesce(func.sum(case((run_results.c.failed, 1), else_=0)), 0).label("failed")
    stored = func.count(run_results.c.position).label("stored")
    return select(runs, stored, failed).outerjoin(run_results).group_by(runs.c.id)


def _stored(row: Row[Any]) -> StoredRun:
    failed = int(row.failed)
    return StoredRun(row.id, utc(row.started), row.planned, row.stored - failed, failed, row.plan)
