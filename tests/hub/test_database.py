"""The database: created, migrated, locked, named by settings; what a hub does on SQLite, it does on PostgreSQL."""

import concurrent.futures
import hashlib
import io
import json
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from typer.testing import CliRunner

from kcard.cli.main import app
from kcard.config import settings
from kcard.config_file import concealed
from kcard.errors import HubError, MissingExtra, Unavailable, UsageError
from kcard.hub.accounts import Accounts
from kcard.hub.audits import AuditFinding
from kcard.hub.db.models import HEAD, Account, HubSetting, StoredVerdict, Upload, metadata
from kcard.hub.db.session import Database
from kcard.hub.registry import Hub
from tests.hub.postgres import Cluster, running
from tests.hub.stand import hold as hold_blobs
from tests.hub.stand import in_child, seal_card


def ask(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(query, values).fetchall()
        connection.commit()
        return rows
    finally:
        connection.close()


def is_declared(name: str | None, _kind: str, _parents: object) -> bool:
    """The text indexes of SQLite and PostgreSQL are not in the metadata."""
    return name not in ("vector", "ix_search_vector") and not (name or "").startswith("search_text")


def test_a_fresh_database_is_at_head_and_writes_ahead(home: Path) -> None:
    Hub(home)
    path = home / "hub" / "hub.db"
    assert ask(path, "SELECT version_num FROM alembic_version") == [(HEAD,)]
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("9999", r"schema 9999.*newer kcard.*upgrade kcard"),
        ("0013", r"schema 0013 of an earlier kcard.*publish the cards again"),
    ],
)
def test_a_database_of_another_kcard_is_refused_and_left_alone(home: Path, number: str, message: str) -> None:
    Hub(home)
    path = home / "hub" / "hub.db"
    ask(path, f"UPDATE alembic_version SET version_num = '{number}'")
    with pytest.raises(HubError, match=message):
        Hub(home)
    assert ask(path, "SELECT version_num FROM alembic_version") == [(number,)]


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


@pytest.fixture
def location(each_database: str | None, tmp_path: Path) -> Path | str:
    return each_database or tmp_path / "hub.db"


@pytest.fixture
def hub(each_database: str | None, home: Path) -> Hub:
    return Hub(home, database_url=each_database)


@pytest.mark.parametrize(
    ("setting", "account", "message"),
    [
        (None, None, None),
        ("library", "library", None),
        ("clinic", "clinic", "own cards are in the organisation clinic.*serve --namespace library.*publish"),
        ("library-cards", "library", "own cards are in the organisation library-cards"),
        (None, "Library", "has an account Library.*reserves that name.*publish the cards again"),
    ],
)
def test_a_hub_whose_own_cards_are_in_another_organisation_is_refused(
    location: Path | str, setting: str | None, account: str | None, message: str | None
) -> None:
    """A hub of the schema before `library` became the only name."""
    with Database(location).write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0105'"))
        if setting is not None:
            session.add(HubSetting(name="namespace", value=setting))
        if account is not None:
            session.add(Account(name=account, folded=account.lower(), kind="organisation"))
    if message is not None:
        with pytest.raises(HubError, match=message):
            Database(location)
        return
    with Database(location).read() as session:
        assert session.scalar(text("SELECT version_num FROM alembic_version")) == HEAD
        assert session.scalar(select(HubSetting.name)) is None


def row(rules: int) -> dict[str, object]:
    """A row of a table that counts something."""
    return {"sha256": "oncology", "form": "json", "rules": rules, "refusal": "", "reason": ""}


def hold(hub: Hub, sha256: str) -> None:
    """A repository that has the blob in a commit."""
    ada = Accounts(hub.database).add_user("ada")
    hold_blobs(hub.database, ada.id, "ada/card", (sha256, 4))


def stored(hub: Hub, content: bytes) -> str:
    """A blob that nothing names."""
    sha256 = hashlib.sha256(content).hexdigest()
    hub.blobs.put_stream(io.BytesIO(content), sha256, "test")
    return sha256


def test_the_migrations_end_where_the_tables_are(location: Path | str) -> None:
    with Database(location).read() as connection:
        context = MigrationContext.configure(connection.connection(), opts={"include_name": is_declared})
        assert compare_metadata(context, metadata) == []


def test_several_processes_may_open_an_empty_database_at_once(location: Path | str) -> None:
    code = "import sys; from pathlib import Path; from kcard.hub.db.session import Database;"
    code += "x = sys.argv[1]; Database(x if ':' in x else Path(x))"
    command = [sys.executable, "-c", code, str(location)]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(child.communicate()[1], child.returncode) for child in children] == [("", 0)] * 2


def test_a_writer_sees_what_the_one_before_it_wrote_and_none_is_lost(location: Path | str) -> None:
    one, other = Database(location), Database(location)
    with one.write() as connection:
        connection.execute(insert(StoredVerdict).values(row(0)))

    def count(database: Database) -> None:
        for _ in range(20):
            with database.write() as connection:
                now = connection.execute(select(StoredVerdict.rules)).scalar_one()
                connection.execute(update(StoredVerdict).values(rules=now + 1))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(count, [one, other, one, other]))
    with one.read() as connection:
        assert connection.scalar(select(StoredVerdict.rules)) == 80
    one.close()
    other.close()


def test_a_reader_sees_one_state_while_another_writes(location: Path | str) -> None:
    database, count = Database(location), select(func.count()).select_from(StoredVerdict)
    with database.read() as reader:
        assert reader.scalar(count) == 0
        with Database(location).write() as writer:
            writer.execute(insert(StoredVerdict).values(row(0)))
        assert reader.scalar(count) == 0
    with database.read() as reader:
        assert reader.scalar(count) == 1
    database.close()


def test_a_block_that_fails_changes_nothing(location: Path | str) -> None:
    database = Database(location)

    def half() -> None:
        with database.write() as connection:
            connection.execute(insert(StoredVerdict).values(row(1)))
            connection.execute(insert(StoredVerdict).values({**row(2), "reason": "secret"}))

    with pytest.raises(IntegrityError) as caught:
        half()
    assert "secret" not in str(caught.value)
    with database.write() as connection:  # and the next writer has its turn
        assert connection.execute(select(StoredVerdict)).all() == []
    database.close()


def test_names_are_ordered_by_their_bytes(hub: Hub, tmp_path: Path) -> None:
    names = ["a-b", "a.c", "a1", "ab", "a_b"]
    for name in names:
        hub.publish(seal_card(tmp_path / name, name))
    assert [version.name for version in hub.list()] == sorted(names)


def test_what_a_hub_does_it_does_on_both(hub: Hub, tmp_path: Path) -> None:
    first = hub.publish(seal_card(tmp_path / "a", "oncology"), aliases=["stable"])
    second = hub.publish(seal_card(tmp_path / "a", "oncology", "new"))
    assert (second.number, hub.get("oncology@stable"), first.published.tzinfo) == (2, first, UTC)
    assert datetime.now(UTC) - first.published < timedelta(minutes=1)
    hub.pools.create("clinic", ["oncology@v1"])
    finding = AuditFinding("minilm", None, None, None, "own corpus", "cd" * 32, 7, None, 0.25, "{}")
    hub.audits.add(first, finding)
    hub.quarantine.set(0.5)
    assert [audit.finding for audit in hub.audits.list("oncology")] == [finding]
    quarantined = {v.reference: v.quarantine.factuality for v in hub.versions("oncology") if v.quarantine}
    assert quarantined == {"oncology@v1": 0.25}
    assert hub.folder("oncology@v1").joinpath("config.json").is_file()
    assert hub.verify() == []
    assert [v.reference for v in hub.remove("oncology@v1")] == ["oncology@v1"]
    assert [v.reference for v in hub.list(text="tumours")] == ["oncology@v2"]
    assert hub.publish(seal_card(tmp_path / "a", "oncology", "third")).number == 3
    assert hub.gc() == []


def test_gc_keeps_what_a_repository_holds_and_for_a_day_what_was_uploaded(hub: Hub) -> None:
    committed, fresh, old, nobodys = (stored(hub, name) for name in (b"held", b"fresh", b"old", b"nobody's"))
    hold(hub, committed)
    now = datetime.now(UTC)
    with hub.database.write() as connection:
        for sha256, at in ((fresh, now - timedelta(hours=23)), (old, now - timedelta(hours=25))):
            connection.execute(insert(Upload).values(account_id=1, sha256=sha256, size=5, at=at))
    would = hub.gc(dry_run=True)
    assert {garbage.where for garbage in would} == {hub.blobs.where(old), hub.blobs.where(nobodys)}
    assert sum(garbage.size for garbage in would) == 11
    assert hub.gc() == would
    assert {sha256 for sha256, _ in hub.blobs.sizes()} == {committed, fresh}
    with hub.database.read() as connection:
        assert list(connection.scalars(select(Upload.sha256))) == [fresh]


def test_gc_takes_nothing_that_is_named_at_the_last_moment(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    sha256 = stored(hub, b"weights")
    write, calls = hub.database.write, [0]

    def named_just_now() -> object:
        calls[0] += 1
        if calls[0] == 2:  # gc has read that nothing names the blob, and is about to delete it
            hold(hub, sha256)
        return write()

    monkeypatch.setattr(hub.database, "write", named_just_now)
    assert hub.gc() == []
    assert hub.blobs.holds(sha256)


@pytest.mark.postgres
@pytest.mark.usefixtures("cluster")  # skips where there is none
def test_a_database_that_was_away_serves_again() -> None:
    with running() as cluster:
        database = Database(cluster.create().replace("postgres@", "postgres:secret@"))
        with database.write() as connection:
            connection.execute(insert(StoredVerdict).values(row(0)))
        cluster.stop()
        with pytest.raises(Unavailable, match=r"is unavailable: .*start it") as caught, database.read():
            pass
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)
        cluster.start()
        with database.read() as connection:
            assert connection.scalar(select(StoredVerdict.sha256)) == "oncology"
        database.close()


@pytest.mark.postgres
def test_a_transaction_whose_connection_breaks_is_undone_and_the_next_one_works(
    postgres: str, cluster: Cluster
) -> None:
    database = Database(postgres)

    def broken() -> None:
        with database.write() as connection:
            connection.execute(insert(StoredVerdict).values(row(0)))
            process = connection.scalar(text("SELECT pg_backend_pid()"))
            with Database(cluster.url).write() as other:
                other.execute(text(f"SELECT pg_terminate_backend({process})"))
            connection.execute(select(StoredVerdict))

    with pytest.raises(Unavailable):
        broken()
    with database.write() as connection:
        assert connection.execute(select(StoredVerdict)).all() == []
    database.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_database_may_be_used_after_a_fork(location: Path | str) -> None:
    database = Database(location, serving=True)
    with database.write() as connection:
        connection.execute(insert(StoredVerdict).values(row(0)))

    def count() -> None:
        with database.write() as connection:
            connection.execute(update(StoredVerdict).values(rules=StoredVerdict.rules + 1))

    assert in_child(count) == 0
    count()
    with database.read() as connection:
        assert connection.scalar(select(StoredVerdict.rules)) == 2
    database.close()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ada:secret@example.org/hub",
        "nonsense:secret",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql",
    ],
)
def test_what_is_no_database_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(UsageError, match="postgresql://USER") as caught:
        Database(url)
    assert "secret" not in str(caught.value)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"kcard\[postgres\]"):
        Database("postgresql://127.0.0.1/hub")


def test_a_server_that_is_not_there_is_one_line_and_soon_said() -> None:
    start = time.monotonic()
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1/hub is unavailable.*KCARD_DATABASE_URL") as caught:
        Database("postgresql://ada:secret@127.0.0.1:1/hub?password=hidden")
    assert time.monotonic() - start < 10
    for word in ("secret", "hidden", "\n"):
        assert word not in str(caught.value)


# Settings: where a hub keeps what it holds, and what it audits against. Passwords are not shown.


SECRET = "postgresql://ada:gehe/im@example.org:5432/hub"
NOBODY = SECRET.replace("example.org:5432", "127.0.0.1:1")


def test_the_hub_in_kcard_home_is_where_the_settings_say(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KCARD_DATABASE_URL", f"sqlite:///{tmp_path}/elsewhere.db")
    monkeypatch.setenv("KCARD_BLOBS_URL", f"file://{tmp_path}/store")
    for hub in (Hub(), Hub(home)):
        assert hub.database.path == tmp_path / "elsewhere.db"
        assert hub.blobs.where() == f"file://{tmp_path}/store"
    assert Hub(database_url=f"sqlite:///{tmp_path}/third.db").database.path == tmp_path / "third.db"
    other = Hub(tmp_path / "other")  # a home that is named is a hub of its own
    assert other.database.path == tmp_path / "other" / "hub" / "hub.db"
    assert other.blobs.where() == str(tmp_path / "other" / "hub" / "blobs")


@pytest.mark.parametrize(
    ("name", "value", "theirs"),
    [("database_url", SECRET, '"sqlite:///x"'), ("hub_evidence", ("wikipedia:de",), '["x"]')],
)
def test_the_users_file_may_set_them_and_a_project_may_not(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object, theirs: str
) -> None:
    home.mkdir()
    (home / "config.toml").write_text(f"{name} = {json.dumps(value)}\n", encoding="utf-8")
    assert getattr(settings(), name) == value
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "kcard.toml").write_text(f"{name} = {theirs}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")
    with pytest.raises(UsageError, match=f"{name} can't be set in a project file"):
        settings()


@pytest.mark.parametrize(
    "command",
    [
        ["config"],
        ["config", "--json"],
        ["config", "get", "database_url"],
        ["config", "set", "database_url", NOBODY],
        ["doctor"],
        ["hub", "info"],
    ],
)
def test_no_command_shows_a_password(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCARD_DATABASE_URL", NOBODY)
    done = CliRunner().invoke(app, command)
    assert "127.0.0.1" in done.output + str(done.exception)
    assert "gehe" not in done.output + str(done.exception)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (SECRET, "postgresql://ada:***@example.org:5432/hub"),
        ("postgresql://h/d?user=ada&password=x&a=b", "postgresql://h/d?user=ada&password=***&a=b"),
        ("sqlite:////srv/hub.db", "sqlite:////srv/hub.db"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
    ],
)
def test_what_is_a_password_and_what_not(text: str, shown: str) -> None:
    assert concealed(text) == shown


def test_info_says_where_everything_is(home: Path) -> None:
    done = CliRunner().invoke(app, ["hub", "info", "--json"])
    assert json.loads(done.stdout)["database"] == str(home / "hub" / "hub.db")
    assert json.loads(done.stdout)["blobs"] == str(home / "hub" / "blobs")


def test_evidence_of_audits_is_relative_to_the_home_and_the_environment_goes_first(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings().hub_evidence == ()
    (home / "atlas").mkdir(parents=True)
    (home / "config.toml").write_text('hub_evidence = ["atlas"]\n', encoding="utf-8")
    assert settings().hub_evidence == (str(home / "atlas"),)
    monkeypatch.setenv("KCARD_HUB_EVIDENCE", "one.txt, wikipedia")
    assert settings().hub_evidence == ("one.txt", "wikipedia")
