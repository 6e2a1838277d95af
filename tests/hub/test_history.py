"""Branches, tags, and what a revision means. On both databases."""

import pytest

from kcard.hub.db.models import Repository
from kcard.hub.errors import Conflict, Invalid, NotFound
from kcard.hub.history import check_ref
from tests.hub.stand import Stand


def test_a_revision_is_a_branch_a_tag_a_sha_or_how_a_sha_begins(hub: Stand, card: Repository) -> None:
    first, second = card.head or "", hub.commit(card, {"a.txt": b"1"}).sha
    hub.refs.create_branch(card, "draft/one", first)
    hub.refs.create_tag(card, "v1", first, "the first")
    shas = [hub.refs.resolve(card, r) for r in ("main", "draft/one", "v1", first, second[:7], first[:12])]
    assert shas == [second, first, first, first, second, first]
    for wrong in ("none", "refs/pr/1", second[:6], "0" * 40, "%", "_______", second.upper(), ""):
        with pytest.raises(NotFound) as error:
            hub.refs.resolve(card, wrong)
        assert error.value.what == "revision"


def test_a_sha_of_another_repository_is_not_there(hub: Stand, card: Repository) -> None:
    other = hub.make("ada/other")
    with pytest.raises(NotFound):
        hub.refs.resolve(card, other.head or "")
    with pytest.raises(NotFound):
        hub.refs.create_tag(card, "v1", other.head or "")


def test_branches_and_tags_are_listed_main_first(hub: Stand, card: Repository) -> None:
    head = card.head or ""
    for name in ("a", "z"):
        hub.refs.create_branch(card, name, head)
    hub.refs.create_tag(card, "v2", head)
    hub.refs.create_tag(card, "v1", head, "hello")
    assert [ref.name for ref in hub.refs.branches(card)] == ["main", "a", "z"]
    tags = [(tag.name, tag.sha, tag.message) for tag in hub.refs.tags(card)]
    assert tags == [("v1", head, "hello"), ("v2", head, "")]


def test_what_is_there_already_is_a_conflict(hub: Stand, card: Repository) -> None:
    head = card.head or ""
    hub.refs.create_branch(card, "b", head)
    hub.refs.create_branch(card, "b", head, exist_ok=True)
    hub.refs.create_tag(card, "t", head)
    for make in (hub.refs.create_branch, hub.refs.create_tag):
        for name in ("b", "t", "main"):  # a branch of a tag's name would say what the tag means
            with pytest.raises(Conflict):
                make(card, name, head)


def test_a_tag_is_not_moved_by_commits_and_goes_when_deleted(hub: Stand, card: Repository) -> None:
    hub.refs.create_tag(card, "v1", card.head or "")
    hub.commit(card, {"a.txt": b"1"})
    assert hub.refs.resolve(card, "v1") == card.head
    hub.refs.delete_tag(card, "v1", hub.who("ada"))
    for delete in (hub.refs.delete_tag, hub.refs.delete_branch):
        with pytest.raises(NotFound):
            delete(card, "v1")


def test_main_is_not_deleted_and_a_deleted_branch_leaves_its_commits(hub: Stand, card: Repository) -> None:
    with pytest.raises(Invalid, match="main"):
        hub.refs.delete_branch(card, "main")
    hub.refs.create_branch(card, "b", card.head or "")
    commit = hub.commit(card, {"a.txt": b"1"}, branch="b")
    hub.refs.delete_branch(card, "b")
    assert hub.refs.resolve(card, commit.sha) == commit.sha


ODD = [
    "",
    "a b",
    "a..b",
    "/a",
    "a/",
    "a//b",
    ".a",
    "a/.b",
    "a.lock",
    "a@{1}",
    "refs/heads/x",
    "a\n",
    "-a",
    "ä",
]


@pytest.mark.parametrize("name", [*ODD, "x" * 251, "a" * 40, "a:b", "a~1", "a^", "a?", "a*", "a[", "a\\b"])
def test_a_name_that_git_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        check_ref(name, "tag")


def test_a_branch_and_a_tag_need_a_name(hub: Stand, card: Repository) -> None:
    for make in (hub.refs.create_branch, hub.refs.create_tag):
        with pytest.raises(Invalid):
            make(card, "a..b", card.head or "")
