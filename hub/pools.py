"""Pools of cards, and runs of evaluations."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, case, delete, func, insert, select

from kcard.errors import HubError, UnknownCard, UsageError
from kcard.hub.db.models import members, now, pools, run_results, runs, utc
from kcard.hub.db.session import Database
from kcard.hub.versions import CardReference, Version
from kcard.manifest import NAME

__all__ = ["Pools", "Runs", "StoredPool", "StoredResult", "StoredRun"]


@dataclass(frozen=True)
class StoredPool:
    """A named set of cards. `references` has one reference for each card, in the order of addition.

    "oncology" follows the newest version, "oncology@stable" the alias, "oncology@v2" is fixed.
    """

    name: str
    references: tuple[str, ...]


class Pools:
    """The pools of a hub. `find` returns the version of a reference, or raises UnknownCard."""

    def __init__(self, database: Database, find: Callable[[str], Version]) -> None:
        self._database = database
        self._find = find

    def create(self, name: str, cards: Sequence[str] = ()) -> StoredPool:
        """Create a pool. Raises HubError if the name is taken, UnknownCard for an unknown card."""
        if not NAME.fullmatch(name):
            raise UsageError(
                f"invalid pool name {name!r}: use at most 96 lower-case letters, digits, '.', '_' and '-'"
            )
        references = self._check_references(cards)
        with self._database.write() as connection:
            if _find_id(connection, name) is not None:
                raise HubError(f"pool {name!r} already exists: add cards with `kcard pool add {name} CARD`")
            pool = connection.execute(insert(pools).values(name=name).returning(pools.c.id)).scalar_one()
            _put_members(connection, int(pool), references)
            return _read_pool(connection, name)

    def add(self, name: str, cards: Sequence[str]) -> StoredPool:
        """Add cards. A card that is already in the pool keeps its place, with the new reference."""
        references = self._check_references(cards)
        with self._database.write() as connection:
            _put_members(connection, self._require_id(connection, name), references)
            return _read_pool(connection, name)

    def remove(self, name: str, cards: Sequence[str]) -> StoredPool:
        """Remove cards. Raises UnknownCard for one that is not in the pool."""
        with self._database.write() as connection:
            pool = self._require_id(connection, name)
            contents = ", ".join(_read_pool(connection, name).references) or "none"
            for card in cards:
                here = (members.c.pool_id == pool, members.c.card == CardReference.parse(card).name)
                if connection.execute(delete(members).where(*here)).rowcount == 0:
                    raise UnknownCard(f"card {card!r} is not in pool {name!r}, which has {contents}")
            return _read_pool(connection, name)

    def delete(self, name: str) -> None:
        """Delete a pool; its cards stay."""
        with self._database.write() as connection:
            connection.execute(delete(pools).where(pools.c.id == self._require_id(connection, name)))

    def get(self, name: str) -> StoredPool:
        """Return the pool of that name. Raises HubError, which lists the pools."""
        with self._database.read() as connection:
            self._require_id(connection, name)
            return _read_pool(connection, name)

    def list(self) -> "list[StoredPool]":
        """Return every pool, by name."""
        with self._database.read() as connection:
            return [
                _read_pool(connection, name)
                for name in connection.scalars(select(pools.c.name).order_by(pools.c.name))
            ]

    def _check_references(self, cards: Sequence[str]) -> dict[str, str]:
        """Return the reference of each card, by name; a sha256 is replaced by the version's number."""
        references: dict[str, str] = {}
        for text in cards:
            version = self._find(text)
            reference = version.reference if CardReference.parse(text).digest else text
            if references.setdefault(version.name, reference) != reference:
                raise UsageError(
                    f"{references[version.name]} and {text} are the same card: a pool has each card once"
                )
        return references

    def _require_id(self, connection: Connection, name: str) -> int:
        if (pool := _find_id(connection, name)) is None:
            names = ", ".join(connection.scalars(select(pools.c.name).order_by(pools.c.name)))
            remedy = (
                f"the hub has {names}" if names else f"create it with `kcard pool create {name} CARD ...`"
            )
            raise HubError(f"pool {name!r} not found: {remedy}")
        return pool


def _find_id(connection: Connection, name: str) -> int | None:
    pool_id = connection.scalar(select(pools.c.id).where(pools.c.name == name))
    return None if pool_id is None else int(pool_id)


def _read_pool(connection: Connection, name: str) -> StoredPool:
    rows = select(members.c.reference).join_from(members, pools).where(pools.c.name == name)
    return StoredPool(name, tuple(connection.scalars(rows.order_by(members.c.position))))


def _put_members(connection: Connection, pool: int, references: dict[str, str]) -> None:
    last = connection.scalar(select(func.max(members.c.position)).where(members.c.pool_id == pool))
    position = -1 if last is None else int(last)
    for card, reference in references.items():
        here = (members.c.pool_id == pool, members.c.card == card)
        place = connection.scalar(select(members.c.position).where(*here))
        if place is None:
            place = position = position + 1
        connection.execute(delete(members).where(*here))
        row = {"pool_id": pool, "card": card, "position": place, "reference": reference}
        connection.execute(insert(members).values(row))


# Evaluation runs: plans and results as texts, whose content only kcard.evaluation reads.


@dataclass(frozen=True)
class StoredRun:
    """A run. Of the `planned` results, `answered` + `failed` are stored.

    `plan` describes the questions and settings, `started` is in UTC.
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
            return _read_run(connection, int(number))

    def append(self, number: int, results: Mapping[int, StoredResult]) -> None:
        """Store results by position, all or none, replacing earlier ones. Raises HubError for an unknown run."""
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
            _read_run(connection, number)
            for position in results:
                here = (run_results.c.run_id == number, run_results.c.position == position)
                connection.execute(delete(run_results).where(*here))
            if rows:
                connection.execute(insert(run_results), rows)

    def list(self) -> "list[StoredRun]":
        """Return every run, oldest first."""
        with self._database.read() as connection:
            return [_run_from_row(row) for row in connection.execute(_select_runs().order_by(runs.c.id))]

    def get(self, number: int) -> StoredRun:
        """Return a run. Raises HubError if it is unknown."""
        with self._database.read() as connection:
            return _read_run(connection, number)

    def results(self, number: int) -> Iterator[tuple[int, StoredResult]]:
        """Yield the stored results with their positions, in that order. Raises HubError for an unknown run."""
        query = select(run_results).where(run_results.c.run_id == number).order_by(run_results.c.position)
        with self._database.read() as connection:
            _read_run(connection, number)
            rows = list(connection.execute(query))
        for row in rows:
            yield row.position, StoredResult(zlib.decompress(row.record).decode(), row.failed)

    def delete(self, number: int) -> None:
        """Delete a run with its results. Raises HubError for an unknown run."""
        with self._database.write() as connection:
            _read_run(connection, number)
            connection.execute(delete(runs).where(runs.c.id == number))


def _read_run(connection: Connection, number: int) -> StoredRun:
    row = connection.execute(_select_runs().where(runs.c.id == number)).one_or_none()
    if row is None:
        raise HubError(f"run {number} not found: `kcard runs` lists the runs")
    return _run_from_row(row)


def _select_runs() -> Any:
    """Return the query for runs with the numbers of their answered and failed results."""
    failed = func.coalesce(func.sum(case((run_results.c.failed, 1), else_=0)), 0).label("failed")
    stored = func.count(run_results.c.position).label("stored")
    return select(runs, stored, failed).outerjoin(run_results).group_by(runs.c.id)


def _run_from_row(row: Row[Any]) -> StoredRun:
    failed = int(row.failed)
    return StoredRun(row.id, utc(row.started), row.planned, row.stored - failed, failed, row.plan)
