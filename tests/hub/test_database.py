"""The database: created, migrated, locked; its schema is what the tables say."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

import kcard.hub.db.session
from kcard.errors import HubError
from kcard.hub.audits import AuditFinding
from kcard.hub.db.models import HEAD, Account, PoolMember, Repository, StoredPool, metadata
from kcard.hub.db.session import Database
from kcard.hub.registry import Hub
from kcard.manifest import Manifest, seal


def ask(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(query).fetchall()
        connection.commit()
        return rows
    finally:
        connection.close()


def is_declared(name: str | None, _kind: str, _parents: object) -> bool:
    """The text indexes of SQLite and PostgreSQL are not in the metadata."""
    return name not in ("vector", "ix_search_vector") and not (name or "").startswith("search_text")


def test_the_migrations_end_where_the_tables_are(tmp_path: Path) -> None:
    assert {Account.__tablename__, Repository.__tablename__} <= set(metadata.tables)
    config = Config()
    config.set_main_option(
        "script_location", str(Path(kcard.hub.db.session.__file__).parents[1] / "migrations")
    )
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD
    with Database(tmp_path / "hub.db").read() as connection:
        context = MigrationContext.configure(connection.connection(), opts={"include_name": is_declared})
        assert compare_metadata(context, metadata) == []


def test_a_fresh_database_is_at_head_and_writes_ahead(home: Path) -> None:
    Hub(home)
    path = home / "hub" / "hub.db"
    assert ask(path, "SELECT version_num FROM alembic_version") == [(HEAD,)]
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "hub.db")

    def half() -> None:
        with database.write() as connection:
            connection.execute(insert(StoredPool).values(name="clinic"))
            row = {"pool_id": 77, "card": "oncology", "position": 0, "reference": "oncology"}
            connection.execute(insert(PoolMember).values(row))

    with pytest.raises(IntegrityError, match="FOREIGN KEY"):  # there is no pool 77
        half()
    with database.read() as connection:
        assert connection.execute(select(StoredPool)).all() == []


def test_a_database_of_a_newer_kcard_is_refused_and_left_alone(home: Path) -> None:
    Hub(home)
    path = home / "hub" / "hub.db"
    ask(path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(HubError, match=r"schema 9999.*newer kcard.*upgrade kcard"):
        Hub(home)
    assert ask(path, "SELECT version_num FROM alembic_version") == [("9999",)]


def test_a_database_of_an_earlier_kcard_is_refused_and_left_alone(home: Path) -> None:
    Hub(home)
    path = home / "hub" / "hub.db"
    ask(path, "UPDATE alembic_version SET version_num = '0013'")
    with pytest.raises(HubError, match=r"schema 0013 of an earlier kcard.*publish the cards again"):
        Hub(home)
    assert ask(path, "SELECT version_num FROM alembic_version") == [("0013",)]


def test_audits_of_an_earlier_schema_are_kept_with_unknown_coverage(home: Path, tmp_path: Path) -> None:
    (tmp_path / "card").mkdir()
    seal(tmp_path / "card", Manifest(name="moons", description="Moons"))
    hub = Hub(home)
    hub.publish(tmp_path / "card")
    finding = AuditFinding("minilm", None, "atlas", None, "asked", "ef" * 32, 7, 0.9, 0.4, "{}")
    hub.audits.add(hub.get("moons"), finding)
    path = home / "hub" / "hub.db"
    for column in ("coverage", "overlap", "judged"):
        ask(path, f"ALTER TABLE audits DROP COLUMN {column}")
    ask(path, "ALTER TABLE versions DROP COLUMN coverage")
    ask(path, "UPDATE alembic_version SET version_num = '0101'")
    assert [stored.finding for stored in Hub(home).audits.list()] == [finding]
    assert ask(path, "SELECT version_num FROM alembic_version") == [(HEAD,)]


def test_a_file_that_is_no_database_is_one_clear_error(home: Path) -> None:
    path = home / "hub" / "hub.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(HubError, match=r"hub\.db: file is not a database"):
        Hub(home)


def test_a_home_that_cant_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(HubError, match="can't open the hub"):
        Hub(tmp_path / "file")


def test_readers_go_on_while_another_writes(tmp_path: Path) -> None:
    database = Database(tmp_path / "hub.db")
    with database.write() as writer:
        writer.execute(insert(StoredPool).values(name="clinic"))
        with Database(tmp_path / "hub.db").read() as reader:
            assert reader.execute(select(StoredPool)).all() == []
    with database.read() as reader:
        assert reader.scalar(select(StoredPool.name)) == "clinic"


def test_an_open_database_needs_no_alembic(home: Path) -> None:
    Hub(home)
    code = "import sys, kcard.hub.registry as r; print(r.Hub().list(), 'alembic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["[]", "False"]
