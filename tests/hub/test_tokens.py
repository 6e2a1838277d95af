"""Tokens: shown once, stored as a digest, and worth what their user, scope and time say."""

import hashlib
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from kcard.errors import UsageError
from kcard.hub.accounts import Accounts, Events
from kcard.hub.db.models import Token
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, NotFound, Unauthenticated
from kcard.hub.tokens import TokenStore
from tests.hub.rows import hold


@pytest.fixture
def database(tmp_path: Path) -> Database:
    database = Database(tmp_path / "hub.db")
    Accounts(database).add_user("ada", fullname="Ada Lovelace", email="ada@example.org")
    return database


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


def test_nothing_in_the_database_is_the_token(tokens: TokenStore, database: Database, tmp_path: Path) -> None:
    token = tokens.create("ada")
    with database.read() as connection:
        assert connection.scalar(select(Token.digest)) == hashlib.sha256(token.encode()).hexdigest()
    assert not any(token.removeprefix("kc_").encode() in p.read_bytes() for p in tmp_path.glob("hub.db*"))
    assert token not in repr(Events(database).list())


def test_no_two_tokens_are_the_same(tokens: TokenStore) -> None:
    assert len({tokens.create("ada") for _ in range(20)}) == 20
    assert [t.name for t in tokens.list("ada")][:3] == ["cli", "cli-2", "cli-3"]


@pytest.mark.parametrize(
    "text", ["", "kc_", "kc_" + "A" * 40, "nonsense", "kc_ä", "kc_" + "A" * 5000, "a\0b"]
)
def test_what_is_no_token_is_nobody(tokens: TokenStore, text: str) -> None:
    tokens.create("ada")
    assert tokens.identify(text) is None


def test_a_token_in_another_case_or_cut_short_is_nobody(tokens: TokenStore) -> None:
    token = tokens.create("ada")
    for near in (token.swapcase(), "kc_" + token[3:].swapcase(), token[:-1], token + "A"):
        assert tokens.identify(near) is None


def test_a_token_of_the_other_hub_is_named_as_such_and_not_repeated(tokens: TokenStore) -> None:
    with pytest.raises(Unauthenticated, match="Hugging Face token") as refused:
        tokens.identify("hf_" + "s" * 34)
    assert "ssss" not in str(refused.value)


def test_a_token_stops_working_when_it_expires(tokens: TokenStore) -> None:
    token = tokens.create("ada", days=0.3 / 86_400)
    assert tokens.identify(token) is not None
    time.sleep(0.35)
    with pytest.raises(Unauthenticated, match="expired"):
        tokens.identify(token)


def test_a_token_stops_working_while_its_user_is_disabled(tokens: TokenStore, database: Database) -> None:
    token = tokens.create("ada")
    Accounts(database).update("ada", disabled=True)
    with pytest.raises(Unauthenticated, match="ada is disabled"):
        tokens.identify(token)
    Accounts(database).update("ada", disabled=False)
    assert tokens.identify(token) is not None


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
