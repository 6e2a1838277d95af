"""Accounts and organisations: who there is, what they may be called, what is written down of it. On both databases."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from kcard.errors import UsageError
from kcard.hub.accounts import RESERVED, Accounts, Events, check_namespace
from kcard.hub.db.models import now
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Forbidden, Invalid, NotFound, TooLarge
from kcard.hub.quotas import require_quota
from tests.hub.rows import hold


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
    assert timedelta(0) <= now() - ada.created < timedelta(minutes=1)


def test_users_and_organisations_share_one_space_of_names(accounts: Accounts) -> None:
    accounts.add_user("ada")
    with pytest.raises(Conflict, match="'ada' already"):
        accounts.add_organisation("ADA", owner="ada")
    with pytest.raises(Conflict):
        accounts.add_user("Ada")


def test_a_name_that_could_mean_something_else_is_refused(accounts: Accounts) -> None:
    for name in ("", "-ada", "ada.", "a b", "a/b", "a--b", "a..b", "a.git", "ä", "a\0", "\ud800", "x" * 97):
        with pytest.raises(Invalid):
            accounts.add_user(name)
        with pytest.raises(NotFound):
            accounts.get(name)
    assert accounts.list() == []


@pytest.mark.parametrize("name", [*sorted(RESERVED), "API", "Datasets"])
def test_reserved_names_are_refused_in_whatever_case(name: str) -> None:
    with pytest.raises(Invalid, match="reserved"):
        check_namespace(name)


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


def test_what_an_account_holds_counts_each_file_once(accounts: Accounts, database: Database) -> None:
    ada, bob = accounts.add_user("ada"), accounts.add_user("bob")
    hold(database, ada.id, "ada/one", ("a" * 64, 100), ("b" * 64, 10))
    hold(database, ada.id, "ada/two", ("a" * 64, 100))
    hold(database, bob.id, "bob/one", ("a" * 64, 100))
    assert (accounts.get("ada").used, accounts.get("bob").used) == (110, 100)


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


def test_an_event_is_undone_with_what_it_tells_of(database: Database) -> None:
    log = Events(database)

    def half() -> None:
        with database.write() as connection:
            log.add("ada", "repository.deleted", "ada/one", connection)
            raise Conflict("not after all")

    with pytest.raises(Conflict):
        half()
    assert log.list() == []
