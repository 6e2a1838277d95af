"""Repositories: made, found in whatever case, moved, deleted, liked, asked for. On both databases."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kcard.hub.errors import Conflict, Invalid, NotThere, TooLarge
from kcard.hub.repositories import ListQuery
from tests.hub.stand import Stand, stand


@pytest.fixture
def hub(tmp_path: Path, any_database: str | None) -> Iterator[Stand]:
    with stand(tmp_path / "hub", any_database) as opened_hub:
        yield opened_hub


def test_a_new_repository_has_one_commit_with_gitattributes_on_main(hub: Stand) -> None:
    repository = hub.make("ada/Onco")
    assert repository.head == hub.refs.resolve(repository, "main")
    assert list(hub.commits.tree(repository, "" if repository.head is None else repository.head)) == [
        ".gitattributes"
    ]
    assert [c.author for c in hub.commits.list(repository, repository.head or "")] == ["ada"]
    assert repository == hub.repositories.get("model", "ADA/onco")
    assert (repository.private, repository.gated, repository.downloads, repository.likes) == (
        False,
        "no",
        0,
        0,
    )


def test_a_name_is_taken_in_whatever_case_but_by_one_type_only(hub: Stand) -> None:
    hub.make("ada/onco")
    with pytest.raises(Conflict, match="'ada/onco' already") as error:
        hub.make("ada/ONCO")
    assert error.value.name == "ada/onco"
    ada = hub.who("ada")
    assert hub.repositories.create("dataset", ada.account_id, "ada/onco", by=ada).type == "dataset"


@pytest.mark.parametrize("name", ["onco", "ada/", "ada/a/b", "ada/a--b", "ada/..", "ada/x.git", "api/x"])
def test_a_name_that_could_mean_something_else_is_refused(hub: Stand, name: str) -> None:
    with pytest.raises(Invalid):
        hub.repositories.create("model", 1, name, by=hub.who("ada"))


def test_what_is_deleted_is_gone_with_its_history_and_terms(hub: Stand) -> None:
    repository = hub.make("ada/onco")
    hub.repositories.delete(repository)
    with pytest.raises(NotThere) as error:
        hub.repositories.get("model", "ada/onco")
    assert error.value.what == "repository"
    with pytest.raises(NotThere):
        hub.refs.resolve(repository, "main")
    again = hub.make("ada/onco")
    assert again.head != repository.head
    assert hub.listing.page(ListQuery("model", search="onco"), None)[0] == [again]


def test_a_moved_repository_is_found_under_its_new_name_only(hub: Stand) -> None:
    repository = hub.make("ada/onco")
    moved = hub.repositories.move(repository, "EVE/cardio")
    assert moved.name == "eve/cardio"  # the account's own spelling
    assert moved.head == repository.head
    with pytest.raises(NotThere):
        hub.repositories.get("model", "ada/onco")
    assert hub.listing.page(ListQuery("model", author="eve", search="cardio"), None)[0] == [moved]
    assert hub.listing.page(ListQuery("model", search="onco"), None)[0] == []
    assert hub.repositories.move(moved, "eve/Cardio").name == "eve/Cardio"


def test_a_move_is_refused_to_a_taken_name_nobody_s_account_and_a_full_one(hub: Stand) -> None:
    repository = hub.make("ada/onco")
    hub.make("eve/there")
    with pytest.raises(Conflict):
        hub.repositories.move(repository, "eve/THERE")
    with pytest.raises(NotThere) as error:
        hub.repositories.move(repository, "nobody/onco")
    assert error.value.what == "account"
    hub.commit(repository, {"a.txt": b"a" * 1000})
    hub.accounts.update("eve", quota=500)
    with pytest.raises(TooLarge):
        hub.repositories.move(repository, "eve/onco")
    assert hub.repositories.get("model", "ada/onco").name == "ada/onco"


def test_hidden_gated_and_counted(hub: Stand) -> None:
    repository = hub.make("ada/onco")
    changed = hub.repositories.update(repository, private=True, gated="manual")
    assert changed == replace(repository, private=True, gated="manual")
    assert hub.repositories.update(repository) == changed
    hub.repositories.count_download({repository.id: 3, 999: 1})
    hub.repositories.count_download({repository.id: 2})
    assert hub.repositories.get("model", "ada/onco").downloads == 5


def test_an_account_likes_once(hub: Stand) -> None:
    repository = hub.make("ada/onco")
    ada, eve = hub.who("ada").account_id, hub.who("eve").account_id
    for account in (ada, eve, eve):
        hub.repositories.like(repository, account)
    assert hub.repositories.get("model", "ada/onco").likes == 2
    hub.repositories.like(repository, ada, liked=False)
    hub.repositories.like(repository, ada, liked=False)
    assert hub.repositories.get("model", "ada/onco").likes == 1


def test_access_is_asked_for_and_answered(hub: Stand) -> None:
    repository = hub.repositories.update(hub.make("ada/onco"), gated="manual")
    eve = hub.who("eve").account_id
    assert hub.repositories.request_access(repository, eve) == "pending"
    assert not hub.repositories.granted(repository, eve)
    hub.repositories.grant(repository, eve)
    assert hub.repositories.request_access(repository, eve) == "granted"
    assert hub.repositories.granted(repository, eve)
    assert not hub.repositories.granted(repository, None)
    hub.repositories.grant(repository, eve, "rejected")
    assert [(r.account, r.state) for r in hub.repositories.requests(repository)] == [("eve", "rejected")]
    auto = hub.repositories.update(hub.make("ada/auto"), gated="auto")
    assert hub.repositories.request_access(auto, eve) == "granted"
