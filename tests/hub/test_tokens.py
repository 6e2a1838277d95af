"""Tokens, worth what their user, scope and time say, and the sessions of browsers. On both databases."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from kcard.errors import UsageError
from kcard.hub.accounts import Accounts, Events
from kcard.hub.backup import copy_rows
from kcard.hub.db.models import BrowserSession, now
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, NotFound, Unauthenticated
from kcard.hub.tokens import LONGEST_SESSION, Sessions, TokenStore
from tests.hub.rows import hold


@pytest.fixture
def database(any_database: str | None, tmp_path: Path) -> Iterator[Database]:
    database = Database(any_database or tmp_path / "hub.db")
    Accounts(database).add_user("ada", fullname="Ada Lovelace", email="ada@example.org")
    yield database
    database.close()


@pytest.fixture
def tokens(database: Database) -> TokenStore:
    return TokenStore(database)


def test_a_token_tells_who_shows_it_and_what_for(tokens: TokenStore, database: Database) -> None:
    accounts = Accounts(database)
    accounts.add_organisation("lab", owner="ada")
    token = tokens.create("ADA", scope="read", name="laptop")
    assert token.startswith("kc_")
    assert len(token) == 43
    identity = tokens.identify(token)
    assert identity is not None
    assert (identity.account_id, identity.name, identity.scope) == (accounts.get("ada").id, "ada", "read")
    assert (identity.admin, identity.repository_id, identity.token_name) == (False, None, "laptop")
    assert dict(identity.organisations) == {"lab": "admin"}
    accounts.update("lab", disabled=True)
    again = tokens.identify(token)
    assert again is not None
    assert dict(again.organisations) == {}


def test_no_two_tokens_are_the_same(tokens: TokenStore) -> None:
    assert len({tokens.create("ada") for _ in range(20)}) == 20
    assert [t.name for t in tokens.list("ada")][:3] == ["cli", "cli-2", "cli-3"]


@pytest.mark.parametrize(
    "text", ["", "kc_", "kc_" + "A" * 40, "nonsense", "kc_ä", "kc_" + "A" * 5000, "a\0b"]
)
def test_what_is_no_token_is_nobody(tokens: TokenStore, text: str) -> None:
    token = tokens.create("ada")
    for wrong in (text, token.swapcase(), "kc_" + token[3:].swapcase(), token[:-1], token + "A"):
        assert tokens.identify(wrong) is None


def test_a_revoked_token_is_nobody_and_the_others_stay(tokens: TokenStore) -> None:
    first, second = tokens.create("ada", name="a"), tokens.create("ada", name="b")
    tokens.revoke("ada", "a")
    assert tokens.identify(first) is None
    assert tokens.identify(second) is not None
    assert [t.name for t in tokens.list("ada")] == ["b"]
    with pytest.raises(NotFound, match="no token 'a'"):
        tokens.revoke("ada", "a")


def test_a_name_is_given_to_one_token_at_a_time(tokens: TokenStore) -> None:
    tokens.create("ada", name="laptop")
    with pytest.raises(Conflict, match="laptop"):
        tokens.create("ada", name="laptop")


def test_a_token_may_be_bound_to_one_repository(tokens: TokenStore, database: Database) -> None:
    hold(database, Accounts(database).get("ada").id, "ada/Card")
    identity = tokens.identify(tokens.create("ada", repository="ada/card"))
    assert identity is not None
    assert identity.repository_id is not None
    assert [t.repository for t in tokens.list()] == ["ada/Card"]
    with pytest.raises(NotFound, match="dataset repository 'ada/card' not found"):
        tokens.create("ada", repository="datasets/ada/card")


def test_what_can_not_be_a_token_is_refused_before_it_is_made(tokens: TokenStore, database: Database) -> None:
    Accounts(database).add_organisation("lab", owner="ada")
    wrong: list[tuple[str, dict[str, object]]] = [
        ("ada", {"scope": "all"}),
        ("ada", {"days": 0}),
        ("ada", {"days": 1e9}),
        ("ada", {"name": ""}),
        ("ada", {"name": "a\nb"}),
        ("lab", {}),
    ]
    for user, options in wrong:
        with pytest.raises(UsageError):
            tokens.create(user, **options)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        tokens.create("nobody")
    assert tokens.list() == []


def test_the_log_tells_of_tokens_by_name(tokens: TokenStore, database: Database) -> None:
    tokens.create("ada", name="laptop", scope="read", days=2, by="root")
    tokens.revoke("ada", "laptop")
    log = [(e.actor, e.action, e.target, dict(e.detail)) for e in Events(database).list(limit=2)]
    assert log == [
        (None, "token.revoked", "ada", {"token": "laptop"}),
        ("root", "token.created", "ada", {"token": "laptop", "scope": "read", "days": 2}),
    ]


@pytest.fixture
def token(database: Database) -> str:
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
