"""Accounts, organisations, tokens, sessions and rights: who there is, and who may do what. On both databases."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from kcard.errors import UsageError
from kcard.hub.accounts import RESERVED_NAMES, Accounts, Events, Identity, check_namespace
from kcard.hub.db.models import BrowserSession, Repository, now
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Forbidden, Invalid, NotFound, Refused, TooLarge, Unauthenticated
from kcard.hub.permissions import (
    may_administer,
    may_create,
    may_download,
    may_read,
    may_write,
    repository_not_found,
    require_administer,
    require_administrator,
    require_create,
    require_download,
    require_read,
    require_write,
)
from kcard.hub.quotas import require_quota
from kcard.hub.tokens import MAX_SESSION, Sessions, TokenStore
from tests.hub.postgres import on_both
from tests.hub.stand import hold


@pytest.fixture
def database(any_database: str | None, tmp_path: Path) -> Iterator[Database]:
    database = Database(any_database or tmp_path / "hub.db")
    yield database
    database.close()


@pytest.fixture
def accounts(database: Database) -> Accounts:
    return Accounts(database)


def test_a_user_is_found_in_whatever_case(accounts: Accounts) -> None:
    ada = accounts.add_user("Ada", fullname="Ada Lovelace", quota=10)
    assert (ada.name, ada.kind, ada.admin, ada.disabled, ada.quota) == ("Ada", "user", False, False, 10)
    assert accounts.get("ADA") == ada
    for add in (accounts.add_user, partial(accounts.add_organisation, owner="ada")):  # one space of names
        with pytest.raises(Conflict, match="'Ada' already"):
            add("ADA")
    assert timedelta(0) <= now() - ada.created < timedelta(minutes=1)


def test_a_name_that_could_mean_something_else_is_refused(accounts: Accounts) -> None:
    for name in ("", "-ada", "ada.", "a b", "a/b", "a--b", "a..b", "a.git", "ä", "a\0", "\ud800", "x" * 97):
        with pytest.raises(Invalid):
            accounts.add_user(name)
        with pytest.raises(NotFound):
            accounts.get(name)
    assert accounts.list() == []


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "API", "Datasets"])
def test_reserved_names_are_refused_in_whatever_case(name: str) -> None:
    with pytest.raises(Invalid, match="reserved"):
        check_namespace(name)


@on_both
def test_an_organisation_begins_with_its_owner_and_roles_change(accounts: Accounts) -> None:
    for name in ("ada", "bob"):
        accounts.add_user(name)
    accounts.add_organisation("lab", owner="ada")
    accounts.set_member("lab", "bob", "read")
    assert accounts.members("lab") == {"ada": "admin", "bob": "read"}
    accounts.set_member("LAB", "Bob", "write")
    assert accounts.members("lab")["bob"] == "write"
    accounts.set_member("lab", "bob", None)
    assert accounts.members("lab") == {"ada": "admin"}
    with pytest.raises(UsageError, match="role"):
        accounts.set_member("lab", "bob", "owner")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="organisation"):
        accounts.set_member("lab", "lab", "read")
    with pytest.raises(NotFound):
        accounts.members("ada")


def test_changes_leave_what_is_not_named_alone(accounts: Accounts) -> None:
    accounts.add_user("root", admin=True)
    accounts.add_user("ada", quota=5, email="ada@example.org")
    assert accounts.update("ada", disabled=True).quota == 5
    assert accounts.update("ada", quota=None).quota is None
    changed = accounts.get("ada")
    assert (changed.disabled, changed.email) == (True, "ada@example.org")
    with pytest.raises(UsageError, match="quota -1"):
        accounts.update("ada", quota=-1)


def test_a_text_that_is_too_long_is_refused(accounts: Accounts) -> None:
    accounts.add_user("ada")
    for field in ("fullname", "email", "description"):
        with pytest.raises(UsageError, match=f"{field} is too long: 9999 characters"):
            accounts.update("ada", **{field: "x" * 9999})  # type: ignore[arg-type]


def test_the_last_administrator_stays_one(accounts: Accounts) -> None:
    accounts.add_user("root", admin=True)
    accounts.add_user("ada", admin=True)
    accounts.update("ada", disabled=True)
    with pytest.raises(Forbidden, match="only administrator"):
        accounts.update("root", disabled=True)
    with pytest.raises(Forbidden):
        accounts.update("root", admin=False)
    accounts.update("ada", disabled=False)
    assert not accounts.update("root", admin=False).admin


@on_both
def test_of_many_first_starts_one_makes_the_administrator(accounts: Accounts) -> None:
    administrators = []
    threads = [
        threading.Thread(target=lambda: administrators.append(accounts.create_first())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [account.name for account in administrators if account is not None] == ["admin"]
    assert accounts.get("admin").admin


def test_a_quota_of_the_account_goes_before_that_of_the_hub(accounts: Accounts, database: Database) -> None:
    ada = accounts.add_user("ada")
    hold(database, ada.id, "ada/one", ("a" * 64, 100))
    with database.read() as connection:
        require_quota(connection, ada.id)
        require_quota(connection, ada.id, 100)
        with pytest.raises(TooLarge, match="quota of ada exceeded: 101 of 100 bytes"):
            require_quota(connection, ada.id, 100, more=1)
    accounts.update("ada", quota=101)
    with database.read() as connection:
        require_quota(connection, ada.id, 1, more=1)
    accounts.update("ada", quota=0)
    with database.read() as connection, pytest.raises(TooLarge):
        require_quota(connection, ada.id)


def test_every_change_of_an_account_is_in_the_log_with_who_made_it(
    accounts: Accounts, database: Database
) -> None:
    accounts.add_user("ada", admin=True)
    accounts.add_organisation("lab", owner="ada", by="ada")
    accounts.update("lab", quota=7, email="lab@example.org", by="ada")
    with pytest.raises(Conflict):
        accounts.add_user("lab")
    log = [(e.actor, e.action, e.target, dict(e.detail)) for e in Events(database).list()]
    assert log == [
        ("ada", "account.updated", "lab", {"quota": 7, "email": True}),
        ("ada", "member.changed", "lab", {"user": "ada", "role": "admin"}),
        ("ada", "account.created", "lab", {"kind": "organisation"}),
        (None, "account.created", "ada", {"kind": "user", "admin": True}),
    ]


def test_the_log_is_read_in_pages_and_by_actor_and_action(database: Database) -> None:
    log = Events(database)
    for number in range(5):
        log.add("ada" if number % 2 else "bob", "repository.created", f"ada/{number}", size=number)
    newest = log.list(limit=2)
    assert [e.target for e in newest] == ["ada/4", "ada/3"]
    assert [e.target for e in log.list(before=newest[-1].number)] == ["ada/2", "ada/1", "ada/0"]
    assert [e.target for e in log.list(actor="ada")] == ["ada/3", "ada/1"]
    assert log.list(action="token.created") == []


# Tokens, worth what their user, scope and time say, and the sessions of browsers. On both databases.


@pytest.fixture
def database_of_ada(database: Database) -> Database:
    Accounts(database).add_user("ada", fullname="Ada Lovelace", email="ada@example.org")
    return database


@pytest.fixture
def tokens(database_of_ada: Database) -> TokenStore:
    return TokenStore(database_of_ada)


@on_both
def test_a_token_tells_who_shows_it_and_what_for(tokens: TokenStore, database_of_ada: Database) -> None:
    accounts = Accounts(database_of_ada)
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


def test_no_two_tokens_are_the_same_or_have_one_name(tokens: TokenStore) -> None:
    assert len({tokens.create("ada") for _ in range(20)}) == 20
    assert [t.name for t in tokens.list("ada")][:3] == ["cli", "cli-2", "cli-3"]
    with pytest.raises(Conflict, match="cli-2"):
        tokens.create("ada", name="cli-2")


def test_what_is_no_token_is_nobody(tokens: TokenStore) -> None:
    token = tokens.create("ada")
    near = (token.swapcase(), "kc_" + token[3:].swapcase(), token[:-1], token + "A")
    odd = ("", "kc_", "kc_" + "A" * 40, "nonsense", "kc_ä", "kc_" + "A" * 5000, "a\0b")
    assert [wrong for wrong in (*near, *odd) if tokens.identify(wrong) is not None] == []


def test_a_revoked_token_is_nobody_and_the_others_stay(tokens: TokenStore) -> None:
    first, second = tokens.create("ada", name="a"), tokens.create("ada", name="b")
    tokens.revoke("ada", "a")
    assert tokens.identify(first) is None
    assert tokens.identify(second) is not None
    assert [t.name for t in tokens.list("ada")] == ["b"]
    with pytest.raises(NotFound, match="no token 'a'"):
        tokens.revoke("ada", "a")


def test_what_can_not_be_a_token_is_refused_before_it_is_made(
    tokens: TokenStore, database_of_ada: Database
) -> None:
    Accounts(database_of_ada).add_organisation("lab", owner="ada")
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
    with pytest.raises(NotFound, match="dataset repository 'ada/card' not found"):
        tokens.create("ada", repository="datasets/ada/card")
    assert tokens.list() == []


def test_the_log_tells_of_tokens_by_name(tokens: TokenStore, database_of_ada: Database) -> None:
    tokens.create("ada", name="laptop", scope="read", days=2, by="root")
    tokens.revoke("ada", "laptop")
    log = [(e.actor, e.action, e.target, dict(e.detail)) for e in Events(database_of_ada).list(limit=2)]
    assert log == [
        (None, "token.revoked", "ada", {"token": "laptop"}),
        ("root", "token.created", "ada", {"token": "laptop", "scope": "read", "days": 2}),
    ]


@on_both
def test_sessions_that_are_over_are_deleted_at_the_next_login(
    database_of_ada: Database, tokens: TokenStore
) -> None:
    sessions, token = Sessions(database_of_ada, tokens), tokens.create("ada")
    sessions.open("ada", token)
    with database_of_ada.write() as connection:
        connection.execute(sa.update(BrowserSession).values(opened=now() - MAX_SESSION))
    sessions.open("ada", token)
    with database_of_ada.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(BrowserSession)) == 1


# Rights: every identity against every kind of repository.


OPEN = Repository(id=1, type="model", name="Lab/card", visibility="public", gated="no")
PRIVATE = OPEN.copy(visibility="private")
GATED = OPEN.copy(gated="manual")

OWNER = Identity(1, "lab", scope="write")
READER = Identity(2, "rita", scope="write", organisations={"lab": "read"})
WRITER = Identity(3, "will", scope="write", organisations={"LAB": "write"})
BOSS = Identity(4, "bess", scope="write", organisations={"Lab": "admin"})
STRANGER = Identity(5, "sam", scope="admin", organisations={"other": "admin"})
ROOT = Identity(6, "root", admin=True, scope="admin")


# read private, files of gated, write, administer, create in the namespace
@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (None, "-----"),
        (STRANGER, "-----"),
        (READER, "rf---"),
        (WRITER, "rfw-c"),
        (BOSS, "rfwac"),
        (OWNER, "rfwac"),
        (ROOT, "rfwac"),
        (replace(OWNER, scope="read"), "rf---"),
        (replace(WRITER, scope="read"), "rf---"),
        (replace(ROOT, scope="write"), "-----"),  # an administrator's everyday token is an ordinary user's
        (replace(OWNER, repository_id=1), "rfwa-"),
        (replace(OWNER, repository_id=2), "-----"),
        (replace(ROOT, repository_id=1), "-----"),
    ],
)
def test_what_each_may_do_in_a_namespace(identity: Identity | None, expected: str) -> None:
    allowed = (
        may_read(identity, PRIVATE),
        may_download(identity, GATED, granted=False),
        may_write(identity, PRIVATE),
        may_administer(identity, PRIVATE),
        may_create(identity, "laB"),
    )
    assert "".join(letter if may else "-" for letter, may in zip("rfwac", allowed, strict=True)) == expected
    assert may_read(identity, OPEN)
    assert may_write(identity, OPEN) == may_write(identity, PRIVATE)


def test_files_of_a_gated_repository_are_given_to_whom_access_was_granted() -> None:
    assert may_download(STRANGER, GATED, granted=True)
    assert not may_download(None, GATED, granted=True)
    assert not may_download(replace(STRANGER, repository_id=2), GATED, granted=True)
    assert not may_download(STRANGER, GATED.copy(visibility="private"), granted=True)


def refusal_of(call: object, *arguments: object) -> Refused:
    with pytest.raises(Refused) as refused:
        call(*arguments)  # type: ignore[operator]
    return refused.value


def test_a_private_repository_is_refused_word_for_word_as_one_that_is_not_there() -> None:
    for identity in (None, STRANGER):
        for require in (require_read, require_write, require_administer):
            refused = refusal_of(require, identity, PRIVATE)
            assert isinstance(refused, NotFound)
            assert (refused.what, refused.known) == ("repository", identity is not None)
            assert str(refused) == str(repository_not_found("Lab/card", identity))
        assert isinstance(refusal_of(require_download, identity, PRIVATE, True), NotFound)


@pytest.mark.parametrize(
    ("require", "what"),
    [
        (require_write, OPEN),
        (require_administer, OPEN),
        (require_create, "lab"),
        (require_administrator, None),
    ],
)
def test_nobody_is_asked_to_log_in_and_somebody_is_told_that_they_may_not(
    require: object, what: Repository | str | None
) -> None:
    arguments = [] if what is None else [what]
    assert type(refusal_of(require, None, *arguments)) is Unauthenticated
    assert type(refusal_of(require, STRANGER, *arguments)) is Forbidden
    assert type(refusal_of(require, replace(ROOT, scope="write"), *arguments)) is Forbidden


@pytest.mark.parametrize(
    ("refusal", "is_of_scope"),
    [
        ((require_write, replace(OWNER, scope="read"), OPEN), True),
        ((require_create, replace(OWNER, scope="read"), "lab"), True),
        ((require_write, STRANGER, OPEN), False),
    ],
)
def test_a_refusal_says_when_it_is_the_tokens_scope_that_is_too_small(
    refusal: tuple[object, ...], is_of_scope: bool
) -> None:
    assert ("scope read" in str(refusal_of(*refusal))) == is_of_scope
