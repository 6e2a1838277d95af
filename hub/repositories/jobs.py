"""The queue of measurements: every job is done once, although workers and their machines may die.

A worker claims a job with a lease, which it extends while it works. Once the lease has ended, another may claim the
job. Only the holder of the lease can complete the job, in one transaction with the results.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, or_, select, update

from kcard.errors import HubError, UnknownCard
from kcard.hub.accounts.events import write
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import jobs, repositories, versions
from kcard.hub.records.utc import now, utc
from kcard.hub.refusals import Conflict, NotThere
from kcard.hub.repositories import job_rows, own_namespace, version_rows
from kcard.hub.repositories.audits import AuditFinding, store
from kcard.hub.repositories.job_rows import WAITING
from kcard.hub.repositories.versions import Version

__all__ = ["Claim", "Job", "Jobs", "LeaseLost", "State"]

State: TypeAlias = Literal["waiting", "running", "done", "failed"]
RUNNING, DONE, FAILED = "running", "done", "failed"
LEASE = timedelta(seconds=60)
MOST_ATTEMPTS = 4
FIRST_DELAY = timedelta(seconds=30)  # doubled with each attempt
LONGEST_ERROR = 500


class LeaseLost(HubError):
    """Another worker has the job, or its version was removed: nothing was written."""


@dataclass(frozen=True)
class Job:
    """A measurement of a version.

    state     waiting (until `due`), running, done or failed
    attempts  how often a worker began
    seed      of the questions and of the card's sampling
    worker    who works on it, until `lease` unless extended
    error     why the last attempt failed
    repository  of the card, namespace/name
    All times are in UTC.
    """

    number: int
    card: str
    repository: str
    version: int
    state: State
    attempts: int
    seed: int
    created: datetime
    due: datetime
    worker: str | None = None
    lease: datetime | None = None
    ended: datetime | None = None
    error: str | None = None

    @property
    def reference(self) -> str:
        return f"{self.card}@v{self.version}"


@dataclass(frozen=True)
class Claim:
    """A job that a worker holds. Another claim of the same job has another number of attempts."""

    job: Job
    worker: str

    @property
    def condition(self) -> ColumnElement[bool]:
        """The condition on `jobs` that the claim still holds."""
        mine = and_(jobs.c.worker == self.worker, jobs.c.attempts == self.job.attempts)
        return and_(jobs.c.id == self.job.number, jobs.c.state == RUNNING, mine)


class Jobs:
    """The jobs of a hub. `lease`: how long a claim holds unless it is extended."""

    def __init__(self, database: Database, lease: timedelta = LEASE) -> None:
        self._database, self._lease = database, lease

    @property
    def measuring(self) -> bool:
        """Whether versions are measured when they are published."""
        with self._database.read() as connection:
            return job_rows.is_on(connection)

    def switch(self, on: bool) -> None:
        """Set whether versions are measured when they are published."""
        if self.measuring != on:
            with self._database.write() as connection:
                job_rows.switch(connection, on)

    def add(self, version: Version) -> Job:
        """Have a version measured, unless it already waits. Raises UnknownCard if the version was removed, HubError
        if a worker can't measure such a card."""
        if not job_rows.measurable(version.manifest):
            raise HubError(
                f"{version.reference} can't be measured by a worker: a card of kind {version.manifest.kind} has no "
                "model of its own; use `kcard audit`"
            )
        with self._database.write() as connection:
            row = version_rows.key(connection, version)
            if row is None:
                raise UnknownCard(f"{version.reference} was removed by another process")
            return _waiting(connection, row.id)

    def retry(self, number: int) -> Job:
        """Try a failed job again: a new one for the same version, unless one already waits.

        Raises NotThere for an unknown number, Conflict if the job has not failed.
        """
        columns = (jobs.c.version_id, jobs.c.state)
        with self._database.write() as connection:
            row = connection.execute(select(*columns).where(jobs.c.id == number)).one_or_none()
            if row is None:
                raise NotThere("object", f"job {number} not found: `kcard hub jobs` lists them")
            if row.state != FAILED:
                raise Conflict(f"job {number} has not failed: it is {row.state}")
            return _waiting(connection, row.version_id)

    def add_missing(self, versions: Sequence[Version]) -> "list[Job]":
        """Have those of the versions measured that can be, and that no job measured or will."""
        with self._database.read() as connection:
            known = {job.reference for job in _jobs(connection, _rows().where(jobs.c.state != FAILED))}
        wanted = [v for v in versions if v.reference not in known and job_rows.measurable(v.manifest)]
        return [self.add(version) for version in wanted]

    def list(self, state: State | None = None, limit: int = 100, before: int | None = None) -> "list[Job]":
        """Jobs, newest first; `before`: only those with a lower number."""
        query = _rows().order_by(jobs.c.id.desc()).limit(limit)
        if state is not None:
            query = query.where(jobs.c.state == state)
        if before is not None:
            query = query.where(jobs.c.id < before)
        with self._database.read() as connection:
            return _jobs(connection, query)

    def claim(self, worker: str) -> Claim | None:
        """Claim the job that is due first; None if there is none. `worker` names the caller uniquely.

        A job whose workers died too often has failed.
        """
        with self._database.read() as connection:  # most calls find nothing: don't lock writers out
            if connection.scalar(select(jobs.c.id).where(_claimable()).limit(1)) is None:
                return None
        with self._database.write() as connection:
            dead = and_(_claimable(), jobs.c.attempts >= MOST_ATTEMPTS)
            for job in _jobs(connection, _rows().where(dead)):
                _fail(connection, job, f"its worker died, or lost its lease, {job.attempts} times")
            number = connection.scalar(
                select(jobs.c.id).where(_claimable()).order_by(jobs.c.due, jobs.c.id).limit(1)
            )
            if number is None:
                return None
            values = {"state": RUNNING, "worker": worker, "lease": now() + self._lease}
            here = update(jobs).where(jobs.c.id == number)
            connection.execute(here.values(**values, attempts=jobs.c.attempts + 1))
            return Claim(_job(connection, number), worker)

    def extend(self, claim: Claim) -> None:
        """Extend the lease from now. Raises LeaseLost."""
        with self._database.write() as connection:
            _change(connection, claim, lease=now() + self._lease)

    def complete(self, claim: Claim, findings: Sequence[AuditFinding]) -> None:
        """Store the findings and complete the job, both or neither. Raises LeaseLost."""
        with self._database.write() as connection:
            _change(connection, claim, state=DONE, ended=now(), worker=None, lease=None, error=None)
            job = claim.job
            version_id = connection.execute(
                select(jobs.c.version_id).where(jobs.c.id == job.number)
            ).scalar_one()
            for finding in findings:
                store(connection, version_id, job.reference, finding, None, job=job.number)

    def fail(self, claim: Claim, error: str, *, final: bool = False) -> Job:
        """Put the job back for a later attempt, or end it if this was the last one or `final`. Raises LeaseLost."""
        job, text = claim.job, " ".join(error.split())[:LONGEST_ERROR]
        with self._database.write() as connection:
            delay = FIRST_DELAY * 2 ** (job.attempts - 1)
            _change(connection, claim, state=WAITING, due=now() + delay, worker=None, lease=None, error=text)
            if final or job.attempts >= MOST_ATTEMPTS:
                _fail(connection, job, text)
            return _job(connection, job.number)

    def release(self, claim: Claim) -> None:
        """Put the job back as if it had not been claimed, for a worker that stops. Raises LeaseLost."""
        values = {"state": WAITING, "worker": None, "lease": None, "attempts": claim.job.attempts - 1}
        with self._database.write() as connection:
            _change(connection, claim, **values)


def _claimable() -> ColumnElement[bool]:
    """The condition on `jobs` for those that a worker may claim."""
    at = now()
    waiting = and_(jobs.c.state == WAITING, jobs.c.due <= at)
    return or_(waiting, and_(jobs.c.state == RUNNING, jobs.c.lease < at))


def _change(connection: Connection, claim: Claim, **values: object) -> None:
    """Change the row of a job that the claim holds. Raises LeaseLost."""
    done = connection.execute(update(jobs).where(claim.condition).values(values))
    if done.rowcount == 0:
        raise LeaseLost(f"job {claim.job.number} ({claim.job.reference}) is no longer this worker's")


def _waiting(connection: Connection, version_id: int) -> Job:
    """The job of a version that waits; a new one if there is none."""
    pending = and_(jobs.c.version_id == version_id, jobs.c.state == WAITING)
    number = connection.scalar(select(jobs.c.id).where(pending))
    return _job(connection, job_rows.enqueue(connection, version_id) if number is None else number)


def _fail(connection: Connection, job: Job, error: str) -> None:
    values = {"state": FAILED, "ended": now(), "worker": None, "lease": None, "error": error}
    connection.execute(update(jobs).where(jobs.c.id == job.number).values(values))
    write(connection, None, "job.failed", job.reference, job=job.number, error=error)


def _job(connection: Connection, number: int) -> Job:
    return _jobs(connection, _rows().where(jobs.c.id == number))[0]


def _jobs(connection: Connection, query: Select[Any]) -> list[Job]:
    own = own_namespace.find(connection)
    return [_value(row, own_namespace.bare(own, row.name)) for row in connection.execute(query).all()]


def _rows() -> Select[Any]:
    joined = jobs.join(versions).join(repositories)
    return select(jobs, repositories.c.name, versions.c.number).select_from(joined)


def _value(row: Row[Any], card: str) -> Job:
    return Job(
        number=row.id,
        card=card,
        repository=row.name,
        version=row.number,
        state=row.state,
        attempts=row.attempts,
        seed=row.seed,
        created=utc(row.created),
        due=utc(row.due),
        worker=row.worker,
        lease=None if row.lease is None else utc(row.lease),
        ended=None if row.ended is None else utc(row.ended),
        error=row.error,
    )
