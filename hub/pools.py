"""Pools of cards, and runs of evaluations."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from kcard.errors import HubError, UnknownCard, UsageError
from kcard.hub.db.models import PoolMember, StoredPool, StoredResult, StoredRun, Version
from kcard.hub.db.session import Database
from kcard.hub.versions import CardReference
from kcard.manifest import NAME


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
        with self._database.write() as session:
            if session.scalar(select(StoredPool).filter_by(name=name)) is not None:
                raise HubError(f"pool {name!r} already exists: add cards with `kcard pool add {name} CARD`")
            pool = StoredPool(name=name)
            session.add(pool)
            session.flush()
            return _put_members(session, pool, references)

    def add(self, name: str, cards: Sequence[str]) -> StoredPool:
        """Add cards. A card that is already in the pool keeps its place, with the new reference."""
        references = self._check_references(cards)
        with self._database.write() as session:
            return _put_members(session, _require_pool(session, name), references)

    def remove(self, name: str, cards: Sequence[str]) -> StoredPool:
        """Remove cards. Raises UnknownCard for one that is not in the pool."""
        with self._database.write() as session:
            pool = _require_pool(session, name)
            contents = ", ".join(pool.references) or "none"
            for card in cards:
                member = session.get(PoolMember, (pool.id, CardReference.parse(card).name))
                if member is None:
                    raise UnknownCard(f"card {card!r} is not in pool {name!r}, which has {contents}")
                session.delete(member)
                session.flush()
            session.refresh(pool)
            return pool

    def delete(self, name: str) -> None:
        """Delete a pool; its cards stay."""
        with self._database.write() as session:
            session.execute(delete(StoredPool).where(StoredPool.id == _require_pool(session, name).id))

    def get(self, name: str) -> StoredPool:
        """Return the pool of that name. Raises HubError, which lists the pools."""
        with self._database.read() as session:
            return _require_pool(session, name)

    def list(self) -> "list[StoredPool]":
        """Return every pool, by name."""
        with self._database.read() as session:
            return [*session.scalars(select(StoredPool).order_by(StoredPool.name))]

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


def _require_pool(session: Session, name: str) -> StoredPool:
    pool = session.scalar(select(StoredPool).filter_by(name=name))
    if pool is None:
        names = ", ".join(session.scalars(select(StoredPool.name).order_by(StoredPool.name)))
        remedy = f"the hub has {names}" if names else f"create it with `kcard pool create {name} CARD ...`"
        raise HubError(f"pool {name!r} not found: {remedy}")
    return pool


def _put_members(session: Session, pool: StoredPool, references: dict[str, str]) -> StoredPool:
    members = {member.card: member for member in pool.members}
    position = max((member.position for member in pool.members), default=-1)
    for card, reference in references.items():
        if card in members:
            members[card].reference = reference
        else:
            position += 1
            session.add(PoolMember(pool_id=pool.id, card=card, position=position, reference=reference))
    session.flush()
    session.refresh(pool)
    return pool


# Evaluation runs.


class Runs:
    """The evaluation runs of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, plan: str, planned: int) -> StoredRun:
        """Store a new run that will have `planned` results."""
        with self._database.write() as session:
            run = StoredRun(plan=plan, planned=planned)
            session.add(run)
            session.flush()
            session.refresh(run)
            return run

    def append(self, number: int, results: Mapping[int, StoredResult]) -> None:
        """Store results by position, all or none, replacing earlier ones. Raises HubError for an unknown run."""
        with self._database.write() as session:
            _require_run(session, number)
            for position, result in results.items():
                session.merge(result.copy(run_id=number, position=position, failed=bool(result.failed)))

    def list(self) -> "list[StoredRun]":
        """Return every run, oldest first."""
        with self._database.read() as session:
            return [*session.scalars(select(StoredRun).order_by(StoredRun.number))]

    def get(self, number: int) -> StoredRun:
        """Return a run. Raises HubError if it is unknown."""
        with self._database.read() as session:
            return _require_run(session, number)

    def results(self, number: int) -> Iterator[tuple[int, StoredResult]]:
        """Yield the stored results with their positions, in that order. Raises HubError for an unknown run."""
        query = select(StoredResult).where(StoredResult.run_id == number).order_by(StoredResult.position)
        with self._database.read() as session:
            _require_run(session, number)
            results = session.scalars(query).all()
        for result in results:
            yield result.position, result

    def delete(self, number: int) -> None:
        """Delete a run with its results. Raises HubError for an unknown run."""
        with self._database.write() as session:
            _require_run(session, number)
            session.execute(delete(StoredRun).where(StoredRun.number == number))


def _require_run(session: Session, number: int) -> StoredRun:
    run = session.get(StoredRun, number)
    if run is None:
        raise HubError(f"run {number} not found: `kcard runs` lists the runs")
    return run
