"""Reads rows of card versions."""

from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select

from kcard.hub.accounts.names import folded
from kcard.hub.records.repository_tables import refs, repositories, versions
from kcard.hub.records.utc import utc
from kcard.hub.repositories import figure_rows, own_namespace
from kcard.hub.repositories.figures import Declared, Verified
from kcard.hub.repositories.own_namespace import OwnNamespace
from kcard.hub.repositories.values import BRANCH, MAIN
from kcard.hub.repositories.versions import Version
from kcard.manifest import Manifest

__all__ = ["Key", "declared", "find", "key", "named", "newest", "unexamined"]


class Key(NamedTuple):
    """The ids of a version and its repository, and its commit."""

    id: int
    repository_id: int
    sha: str


def named(connection: Connection, card: str) -> ColumnElement[bool]:
    """The condition on `repositories` for the one of a card."""
    name = own_namespace.full(own_namespace.find(connection), card)
    # The index is on the folded name; cards are named by their exact one.
    same = and_(repositories.c.folded == folded(name), repositories.c.name == name)
    return and_(repositories.c.type == "model", same)


def newest() -> ColumnElement[bool]:
    """The condition on `versions` for the newest of each card."""
    other = versions.alias()
    highest = select(func.max(other.c.number)).where(other.c.repository_id == versions.c.repository_id)
    return versions.c.number == highest.scalar_subquery()


def find(connection: Connection, *conditions: ColumnElement[bool]) -> list[Version]:
    """The versions that match, by card name, oldest first."""
    own = own_namespace.find(connection)
    rows = connection.execute(_rows().where(*conditions)).all()
    verified = figure_rows.verified(connection, {row.id for row in rows})
    grouped = groupby(rows, key=lambda row: row.id)
    found = [_version(list(same), own, verified.get(id_)) for id_, same in grouped]
    return sorted(found, key=lambda version: (version.name, version.number))


def key(connection: Connection, version: Version) -> Key | None:
    """The key of a version; None if it was removed."""
    columns = (versions.c.id, versions.c.repository_id, versions.c.sha)
    query = select(*columns).join_from(versions, repositories).where(named(connection, version.name))
    row = connection.execute(query.where(versions.c.sha256 == version.sha256)).one_or_none()
    return None if row is None else Key(*row)


def declared(row: Row[Any]) -> Declared | None:
    """The self-declared figures of a row of `versions`."""
    return Declared(row.recall, row.factuality, row.fault, row.coverage) if row.examined else None


def unexamined(row: Row[Any]) -> bool:
    """Whether a row of `versions` has weights, but no plausible exam."""
    return bool(row.weights and (not row.examined or row.fault))


def _rows() -> Select[Any]:
    pointing = and_(
        refs.c.repository_id == versions.c.repository_id,
        refs.c.kind == BRANCH,
        refs.c.name != MAIN,
        refs.c.sha == versions.c.sha,
    )
    joined = versions.join(repositories).outerjoin(refs, pointing)
    columns = (repositories.c.name.label("repository"), versions, refs.c.name.label("alias"))
    return select(*columns).select_from(joined).order_by(versions.c.id, refs.c.name)


def _version(rows: list[Row[Any]], own: OwnNamespace | None, verified: Verified | None) -> Version:
    row = rows[0]
    name = own_namespace.bare(own, row.repository)
    return Version(
        name=name,
        number=row.number,
        sha256=row.sha256,
        manifest=Manifest.from_json(row.manifest, f"{name}@v{row.number}"),
        size=row.size,
        published=utc(row.published),
        aliases=tuple(r.alias for r in rows if r.alias is not None),
        declared=declared(row),
        verified=verified,
        unexamined=unexamined(row),
    )
