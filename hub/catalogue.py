"""What is in the hub: versions, their files and aliases. Rows become values here and go no further."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, or_, select, update

from kcard.faults import reach
from kcard.hub.blobs import Blob
from kcard.hub.database import Database
from kcard.hub.tables import aliases, cards, files, versions
from kcard.hub.versions import Version
from kcard.manifest import MANIFEST, Manifest

__all__ = ["Catalogue", "put_version"]


class Catalogue:
    """The database of a hub, as questions and answers about cards."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def names(self) -> list[str]:
        """Every card's name, sorted."""
        with self._database.read() as connection:
            return list(connection.scalars(select(cards.c.name).order_by(cards.c.name)))

    def versions(self, name: str | None = None) -> list[Version]:
        """Every version of a card, or of all cards, oldest first."""
        with self._database.read() as connection:
            return _find(connection, *([] if name is None else [cards.c.name == name]))

    def newest(self, domain: str | None = None, base: str | None = None) -> list[Version]:
        """The newest version of every card whose newest version is of the domain subtree and the base."""
        other = versions.alias()
        highest = select(func.max(other.c.number)).where(other.c.card_id == versions.c.card_id)
        conditions: list[ColumnElement[bool]] = [versions.c.number == highest.scalar_subquery()]
        if domain is not None:
            inside = versions.c.domain.startswith(domain + "/", autoescape=True)
            conditions.append(or_(versions.c.domain == domain, inside))
        if base is not None:
            short = versions.c.base.endswith("/" + base, autoescape=True)
            conditions.append(or_(versions.c.base == base, short))
        with self._database.read() as connection:
            return _find(connection, *conditions)

    def add(
        self, manifest: str, blobs: Mapping[str, Blob], aliases: Sequence[str], locked: Callable[[], None]
    ) -> Version:
        """The version of that manifest, a new one unless it is there already.

        `manifest` is the text of kcard.json, `blobs` has every file of the card by path. `locked` is
        called when no other process can write any more, before anything is.
        """
        content = Manifest.from_json(manifest)
        with self._database.write() as connection:
            locked()
            version = put_version(connection, content.name, manifest, content, blobs)
            card = connection.execute(select(versions.c.card_id).where(versions.c.id == version)).scalar_one()
            for alias in aliases:
                _point(connection, card, alias, version)
                reach("rows.alias")
            return _find(connection, versions.c.id == version)[0]

    def alias(self, version: Version, alias: str) -> Version | None:
        """Point an alias of the card at this version; None where the version is gone by now."""
        with self._database.write() as connection:
            found = connection.execute(_identity(version)).one_or_none()
            if found is None:
                return None
            _point(connection, found.card_id, alias, found.id)
            reach("rows.alias")
            return _find(connection, versions.c.id == found.id)[0]

    def remove(self, gone: Iterable[Version]) -> None:
        """Delete versions with their aliases, and the cards that have none left."""
        with self._database.write() as connection:
            for version in gone:
                found = connection.execute(_identity(version)).one_or_none()
                if found is not None:
                    connection.execute(delete(versions).where(versions.c.id == found.id))
                    reach("rows.removed")
            connection.execute(delete(cards).where(cards.c.id.not_in(select(versions.c.card_id))))

    def inconsistent(self) -> list[str]:
        """References of versions whose rows are not what their manifest's text says."""
        with self._database.read() as connection:
            texts = dict(connection.execute(select(versions.c.sha256, versions.c.manifest)).tuples().all())
            strange = []
            for version in _find(connection):
                text = hashlib.sha256(texts[version.sha256].encode()).hexdigest()
                rows = select(files.c.path, files.c.sha256).join(versions)
                same = versions.c.sha256 == version.sha256
                listed = set(connection.execute(rows.where(same)).tuples())
                # A card of a shared hub has the name of its repository, namespace/name.
                named = version.name == version.manifest.name or "/" in version.name
                right = text == version.sha256 and named
                if not right or listed != set(version.files.items()):
                    strange.append(version.reference)
            return strange


def put_version(
    connection: Connection, name: str, text: str, manifest: Manifest, blobs: Mapping[str, Blob]
) -> int:
    """The id of the version of that manifest under that card name, a new one unless it is there already.

    `text` is that of kcard.json, `blobs` has every file of the card by path.
    """
    card = _card(connection, name)
    same = (versions.c.card_id == card, versions.c.sha256 == blobs[MANIFEST].sha256)
    there = connection.scalar(select(versions.c.id).where(*same))
    return int(there) if there is not None else _insert(connection, card, text, manifest, blobs)


def _rows() -> Select[Any]:
    joined = versions.join(cards).outerjoin(aliases, aliases.c.version_id == versions.c.id)
    columns = (cards.c.name, versions, aliases.c.alias)
    return select(*columns).select_from(joined).order_by(cards.c.name, versions.c.number, aliases.c.alias)


def _find(connection: Connection, *conditions: ColumnElement[bool]) -> list[Version]:
    rows = connection.execute(_rows().where(*conditions))
    return [_version(list(same)) for _, same in groupby(rows, key=lambda row: row.id)]


def _version(rows: Sequence[Row[Any]]) -> Version:
    row = rows[0]
    # SQLite gives back a time without its zone, PostgreSQL one in the session's.
    published = (
        row.published.replace(tzinfo=UTC) if row.published.tzinfo is None else row.published.astimezone(UTC)
    )
    return Version(
        name=row.name,
        number=row.number,
        sha256=row.sha256,
        manifest=Manifest.from_json(row.manifest, f"{row.name}@v{row.number}"),
        size=row.size,
        published=published,
        aliases=tuple(r.alias for r in rows if r.alias is not None),
    )


def _identity(version: Version) -> Select[Any]:
    return (
        select(versions.c.id, versions.c.card_id)
        .join_from(versions, cards)
        .where(cards.c.name == version.name, versions.c.sha256 == version.sha256)
    )


def _card(connection: Connection, name: str) -> int:
    found = connection.scalar(select(cards.c.id).where(cards.c.name == name))
    if found is not None:
        return int(found)
    new = insert(cards).values(name=name, newest=0).returning(cards.c.id)
    card = int(connection.execute(new).scalar_one())
    reach("rows.card")
    return card


def _insert(
    connection: Connection, card: int, text: str, manifest: Manifest, blobs: Mapping[str, Blob]
) -> int:
    connection.execute(update(cards).where(cards.c.id == card).values(newest=cards.c.newest + 1))
    number = connection.execute(select(cards.c.newest).where(cards.c.id == card)).scalar_one()
    values = {
        "card_id": card,
        "number": number,
        "sha256": blobs[MANIFEST].sha256,
        "manifest": text,
        "description": manifest.description,
        "domain": manifest.domain,
        "base": manifest.base.name,
        "size": sum(blob.size for blob in blobs.values()),
        "published": datetime.now(UTC),
    }
    new = insert(versions).values(values).returning(versions.c.id)
    version = int(connection.execute(new).scalar_one())
    reach("rows.version")
    rows = [
        {"version_id": version, "path": path, "sha256": blob.sha256, "size": blob.size}
        for path, blob in blobs.items()
    ]
    connection.execute(insert(files), rows)
    reach("rows.files")
    return version


def _point(connection: Connection, card: int, alias: str, version: int) -> None:
    connection.execute(delete(aliases).where(aliases.c.card_id == card, aliases.c.alias == alias))
    connection.execute(insert(aliases).values(card_id=card, alias=alias, version_id=version))
