"""Sessions of browsers, on both databases."""

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from kcard.hub.accounts import Accounts
from kcard.hub.backup import copy_rows
from kcard.hub.db.models import BrowserSession, now
from kcard.hub.db.session import Database
from kcard.hub.errors import Unauthenticated
from kcard.hub.tokens import LONGEST_SESSION, Sessions, TokenStore


@pytest.fixture
def database(any_database: str | None, tmp_path: Path) -> Database:
    return Database(any_database or tmp_path / "hub.db")


@pytest.fixture
def token(database: Database) -> str:
    Accounts(database).add_user("ada")
    return TokenStore(database).create("ada", name="laptop", days=3)


@pytest.fixture
def open_sessions(database: Database) -> Sessions:
    return Sessions(database, TokenStore(database))


def test_session_has_the_identity_of_its_token(open_sessions: Sessions, token: str) -> None:
    session = open_sessions.find(open_sessions.open("ADA", token))
    assert session is not None
    assert (session.identity.name, session.identity.scope, session.identity.token_name) == (
        "ada",
        "write",
        "laptop",
    )
    assert session.until is not None
    assert timedelta(days=2) < session.until - now() < timedelta(days=4)


def test_ids_differ_and_what_is_none_opens_nothing(open_sessions: Sessions, token: str) -> None:
    first, second = open_sessions.open("ada", token), open_sessions.open("ada", token)
    assert first != second
    for wrong in ("", "x", first[:-1], first + "x", "ä" * 43, "x" * 10_000, token):
        assert open_sessions.find(wrong) is None


@pytest.mark.parametrize("name", ["eve", "", "ada\0", "ada ", "x" * 500])
def test_token_opens_no_session_under_another_name(open_sessions: Sessions, token: str, name: str) -> None:
    with pytest.raises(Unauthenticated, match="unknown name or token"):
        open_sessions.open(name, token)


def test_session_ends_with_its_token_alone(database: Database, open_sessions: Sessions, token: str) -> None:
    other = TokenStore(database).create("ada", name="other")
    ends, stays = open_sessions.open("ada", token), open_sessions.open("ada", other)
    TokenStore(database).revoke("ada", "laptop")
    assert open_sessions.find(ends) is None
    assert open_sessions.find(stays) is not None
    assert open_sessions.close_all(Accounts(database).get("ada").id) == 1
    assert open_sessions.find(stays) is None


def test_sessions_that_are_over_are_deleted_at_the_next_login(
    database: Database, open_sessions: Sessions, token: str
) -> None:
    open_sessions.open("ada", token)
    with database.write() as connection:
        connection.execute(sa.update(BrowserSession).values(opened=now() - LONGEST_SESSION))
    open_sessions.open("ada", token)
    with database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(BrowserSession)) == 1


def test_backup_has_no_sessions(
    database: Database, open_sessions: Sessions, token: str, tmp_path: Path
) -> None:
    open_sessions.open("ada", token)
    copy = Database(tmp_path / "copy.db")
    with database.read() as source, copy.write() as target:
        copy_rows(source, target)
        assert target.scalar(sa.select(sa.func.count()).select_from(BrowserSession)) == 0
