"""Hubs as earlier schemas had them: the database of a new hub written back, row by row."""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

import kcard.hub.records.database
from kcard.hub.registry import Hub
from kcard.hub.repositories import stored_trees, trees
from kcard.hub.repositories.blob_references import kept
from kcard.hub.repositories.versions import Version
from kcard.manifest import MANIFEST

__all__ = ["as_before"]


def as_before(home: Path, revision: str, *, adopted: bool = False) -> None:
    """Put a database of an older schema that holds the same in the place of a hub's.

    `adopted`: the hub was served, so that the cards of its own are repositories too, as they all are since 0005.
    """
    hub = Hub(home)
    versions = hub._catalogue.versions()
    with hub.database.read() as connection:
        sizes = kept(connection)
    texts = {version.sha256: hub._read(version.sha256).decode() for version in versions}
    hub.database.close()
    path = home / "hub" / "hub.db"
    path.rename(path.with_name("new.db"))
    new, old = _engine(path.with_name("new.db")), _created(path, revision)
    with new.begin() as source, old.begin() as target:
        tables, new_tables = _tables(target), _tables(source)
        ids = {
            (row["repository_id"], row["sha256"]): row["id"] for row in _rows(source, new_tables["versions"])
        }
        names = {row["id"]: row["name"] for row in _rows(source, new_tables["repositories"])}
        there = {(names[repository], sha256): id_ for (repository, sha256), id_ in ids.items()}
        exams = {row["id"]: row["factuality"] for row in _rows(source, new_tables["versions"])}
        own = next(
            (row["value"] for row in _rows(source, new_tables["settings"]) if row["name"] == "namespace"), ""
        )
        cards: dict[str, int] = {}
        changed = {"alembic_version", "versions"} if "cards" in tables else {"alembic_version"}
        for version in versions if "cards" in tables else ():
            name = version.name if "/" in version.name else f"{own}/{version.name}"
            card = cards.setdefault(version.name, len(cards) + 1)
            _put_version(
                target, tables, card, there[name, version.sha256], version, texts[version.sha256], sizes
            )
        adopted = adopted or "cards" not in tables
        hidden = set() if adopted else {id_ for id_, name in names.items() if name.startswith(f"{own}/")}
        for table in tables.values():
            if table.name in changed or table.name not in new_tables:
                continue
            rows = [
                row for row in _rows(source, new_tables[table.name]) if row.get("repository_id") not in hidden
            ]
            rows = [row for row in rows if table.name != "repositories" or row["id"] not in hidden]
            if "cards" in tables:
                rows = [row for row in rows if table.name != "settings" or row["name"] != "namespace"]
            rows = [row for row in rows if adopted or table.name != "accounts" or row["name"] != own]
            if table.name == "publications" and "cards" in tables:
                rows = [row | {"factuality": exams[row["version_id"]]} for row in rows]
            if table.name == "commits":
                rows = [row | {"tree": _text(source, row)} for row in rows]
            for row in rows:
                same = {key: value for key, value in row.items() if key in table.c}
                target.execute(sa.insert(table).values(same))
    for engine in (new, old):
        engine.dispose()
    for file in path.parent.glob("new.db*"):
        file.unlink()


def _engine(path: Path) -> sa.Engine:
    return sa.create_engine(sa.URL.create("sqlite", database=str(path)))


def _created(path: Path, revision: str) -> sa.Engine:
    path.write_bytes(_empty(revision))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    return _engine(path)


@cache
def _empty(revision: str) -> bytes:
    """A new database of that schema."""
    engine, config = sa.create_engine("sqlite://", poolclass=sa.StaticPool), Config()
    config.set_main_option(
        "script_location", str(Path(kcard.hub.records.database.__file__).parents[1] / "migrations")
    )
    with engine.begin() as begun:
        config.attributes["connection"] = begun
        command.upgrade(config, revision)
    with closing(engine.raw_connection()) as connection:
        content: bytes = connection.driver_connection.serialize()  # type: ignore[union-attr]
    engine.dispose()
    return content


def _tables(connection: sa.Connection) -> dict[str, sa.Table]:
    metadata = sa.MetaData()
    metadata.reflect(connection)
    return {table.name: table for table in metadata.sorted_tables}


def _rows(connection: sa.Connection, table: sa.Table) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(sa.select(table)).mappings()]


def _text(source: sa.Connection, row: dict[str, Any]) -> str:
    """The tree of a commit as it was stored."""
    found = stored_trees.find(source, row["repository_id"], row["sha"])
    assert found is not None
    return trees.dumps(found.tree)


def _put_version(
    target: sa.Connection,
    tables: dict[str, sa.Table],
    card: int,
    id_: int,
    version: Version,
    text: str,
    sizes: dict[str, int],
) -> None:
    cards = tables["cards"]
    if target.scalar(sa.select(cards.c.id).where(cards.c.id == card)) is None:
        target.execute(sa.insert(cards).values(id=card, name=version.name, newest=0))
    target.execute(sa.update(cards).where(cards.c.id == card).values(newest=version.number))
    row = {"id": id_, "card_id": card, "number": version.number, "sha256": version.sha256, "manifest": text}
    row |= {"description": version.manifest.description, "domain": version.manifest.domain}
    row |= {"base": version.manifest.base.name, "size": version.size, "published": version.published}
    target.execute(sa.insert(tables["versions"]).values(row))
    files = {**version.manifest.files, MANIFEST: version.sha256}
    rows = [{"version_id": id_, "path": p, "sha256": s, "size": sizes[s]} for p, s in files.items()]
    target.execute(sa.insert(tables["files"]), rows)
    for alias in version.aliases:
        row = {"card_id": card, "alias": alias, "version_id": id_}
        target.execute(sa.insert(tables["aliases"]).values(row))
