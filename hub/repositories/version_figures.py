"""What is known of the versions of a card: what its exam declares, and what audits of this hub measured."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from kcard.errors import CardError
from kcard.hub.accounts.identity import Identity
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import audits, repositories, versions
from kcard.hub.records.search_tables import search
from kcard.hub.records.utc import utc
from kcard.hub.repositories.exams import EXAM
from kcard.hub.repositories.figure_rows import AUDIT
from kcard.hub.repositories.figures import is_independent
from kcard.hub.repositories.readable import readable
from kcard.hub.repositories.values import Repository
from kcard.manifest import Manifest

__all__ = [
    "Measured",
    "VersionFigures",
    "VersionLink",
    "derived",
    "figures",
    "recent",
    "verified",
    "version_of",
]

MOST = 30


@dataclass(frozen=True)
class Measured:
    """An audit of this hub that measured factuality, in [0, 1]; see Verified for coverage, judged and independent."""

    factuality: float
    faithfulness: float | None
    taken: datetime
    checker: str
    evidence: str | None
    queries: str
    asked: int | None
    coverage: float | None = None
    judged: int | None = None
    independent: bool = True


@dataclass(frozen=True)
class VersionFigures:
    """A version; `declared` is the factuality of its exam, `verified` the latest audit that measured it."""

    number: int
    sha256: str
    commit: str
    published: datetime
    declared: float | None
    verified: Measured | None
    manifest: Manifest | None

    @property
    def exam(self) -> str | None:
        """The sha256 of its exam."""
        return None if self.manifest is None else self.manifest.files.get(EXAM)

    @property
    def factuality(self) -> float | None:
        return self.declared if self.verified is None else self.verified.factuality


@dataclass(frozen=True)
class VersionLink:
    """A version of a card of this hub, in a list."""

    card: str
    number: int
    commit: str
    description: str
    domain: str
    published: datetime
    verified: Measured | None = None


def figures(database: Database, repository: Repository) -> list[VersionFigures]:
    """The newest versions of a repository, at most 30, oldest first."""
    query = select(versions).where(versions.c.repository_id == repository.id)
    with database.read() as connection:
        rows = connection.execute(query.order_by(versions.c.number.desc()).limit(MOST)).all()
        measured = _measured(connection, [row.id for row in rows])
    return [_figures(row, measured.get(row.id)) for row in reversed(rows)]


def version_of(database: Database, sha256: str, identity: Identity | None) -> VersionLink | None:
    """The version with that manifest which the identity may read; None if this hub has none."""
    query = _links().where(versions.c.sha256 == sha256, readable(identity)).limit(1)
    with database.read() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else _link(row)


def derived(database: Database, sha256: Sequence[str], identity: Identity | None) -> list[VersionLink]:
    """The cards whose newest version was trained on from one of these versions."""
    query = _newest().join(search, search.c.repository_id == repositories.c.id)
    query = query.where(search.c.updates.in_(sha256), readable(identity)).limit(MOST)
    with database.read() as connection:
        return [_link(row) for row in connection.execute(query)]


def recent(database: Database, count: int) -> list[VersionLink]:
    """The versions that were published last in public repositories, newest first."""
    query = _links().where(readable(None)).order_by(versions.c.id.desc()).limit(count)
    with database.read() as connection:
        return [_link(row) for row in connection.execute(query)]


def verified(database: Database, wanted: Sequence[Repository]) -> list[VersionLink]:
    """The newest versions of repositories, in their order, if an audit measured their factuality."""
    query = _newest().where(versions.c.repository_id.in_([repository.id for repository in wanted]))
    with database.read() as connection:
        rows = {row.name: row for row in connection.execute(query)}
        measured = _measured(connection, [row.id for row in rows.values()])
    found = [rows[repository.name] for repository in wanted if repository.name in rows]
    return [_link(row, measured[row.id]) for row in found if row.id in measured]


def _measured(connection: Connection, ids: Sequence[int]) -> dict[int, Measured]:
    """The latest audit that measured factuality, by version; one with independent evidence, if there is any."""
    measured = (audits.c.kind == AUDIT, audits.c.factuality.is_not(None))
    query = select(audits).where(audits.c.version_id.in_(ids), *measured)
    rows = sorted(
        connection.execute(query.order_by(audits.c.id)), key=lambda row: is_independent(row.overlap)
    )
    return {
        row.version_id: Measured(
            row.factuality,
            row.faithfulness,
            utc(row.taken),
            row.checker,
            row.evidence,
            row.queries,
            _asked(row.record),
            row.coverage,
            row.judged,
            is_independent(row.overlap),
        )
        for row in rows
    }


def _asked(record: str) -> int | None:
    try:
        found = json.loads(record)
    except ValueError:
        return None
    asked = found.get("asked") if isinstance(found, Mapping) else None
    return asked if isinstance(asked, int) else None


def _figures(row: Row[Any], verified: Measured | None) -> VersionFigures:
    try:
        manifest = Manifest.from_json(row.manifest)
    except CardError:  # of a newer kcard
        manifest = None
    return VersionFigures(
        row.number, row.sha256, row.sha, utc(row.published), row.factuality, verified, manifest
    )


def _links() -> Select[Any]:
    columns = (versions.c.id, versions.c.number, versions.c.sha, versions.c.description, versions.c.domain)
    return select(*columns, versions.c.published, repositories.c.name).join_from(versions, repositories)


def _newest() -> Select[Any]:
    """Newest versions."""
    other = versions.alias()
    newest = select(other.c.number).where(other.c.repository_id == versions.c.repository_id)
    first = newest.order_by(other.c.number.desc()).limit(1).scalar_subquery()
    return _links().where(versions.c.number == first)


def _link(row: Row[Any], verified: Measured | None = None) -> VersionLink:
    return VersionLink(
        row.name, row.number, row.sha, row.description, row.domain, utc(row.published), verified
    )
