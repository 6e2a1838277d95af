"""Commits: all or none of them, on the parent that was meant, of files that the account may use. On both databases."""

import threading
from dataclasses import replace

import pytest

from kcard.hub import trees
from kcard.hub.checks.formats import MOST_FILES
from kcard.hub.errors import Conflict, Invalid, NotFound, Refused, TooLarge, WrongParent
from kcard.hub.history import check_ref
from kcard.hub.values import Add, Copy, Delete, DeleteFolder, Entry, Ref, Repository
from tests.hub.stand import QUOTA, Stand, entry_of

README = b"---\nlicense: mit\nlanguage: en\ntags: [oncology]\npipeline_tag: text-generation\n---\n# Hello\n"


def paths(hub: Stand, card: Repository, revision: str = "main") -> list[str]:
    return list(hub.commits.tree(card, hub.refs.resolve(card, revision)))


def test_a_commit_adds_replaces_deletes_and_copies_in_one_step(hub: Stand, card: Repository) -> None:
    first = hub.commit(card, {"a.txt": b"1", "sub/b.txt": b"2", "sub/c.txt": b"3", "sub.txt": b"4"})
    second = hub.commit(
        card,
        {"a.txt": b"new"},
        DeleteFolder("sub"),
        Copy("sub/b.txt", first.sha, "kept.txt"),
        Delete("sub.txt"),
    )
    tree = hub.commits.tree(card, second.sha)
    assert list(tree) == [".gitattributes", "a.txt", "kept.txt"]
    assert tree["kept.txt"] == replace(entry_of("sub/b.txt", b"2"), path="kept.txt")
    assert tree["a.txt"].size == 3
    assert second.parent == first.sha
    assert hub.commits.get(card, second.sha) == second
    assert [c.sha for c in hub.commits.list(card, second.sha)] == [second.sha, first.sha, card.head]
    assert [c.sha for c in hub.commits.list(card, second.sha, page=1, size=2)] == [card.head]


def test_what_is_shown_and_found_follows_main_and_no_other_branch(hub: Stand, card: Repository) -> None:
    hub.refs.create_branch(card, "draft", card.head or "")
    hub.commit(card, {"README.md": README}, branch="draft")
    assert hub.repositories.get("model", "ada/onco") == card
    commit = hub.commit(card, {"README.md": README, "w.txt": b"abc"})
    shown = hub.repositories.get("model", "ada/onco")
    assert shown.head == commit.sha
    assert shown.modified == commit.date
    assert shown.card["license"] == "mit"
    assert {"oncology", "license:mit", "en", "text-generation"} <= set(shown.tags)
    assert shown.pipeline_tag == "text-generation"
    assert shown.size == sum(e.size for e in hub.commits.tree(card, commit.sha).values())


def test_another_parent_than_the_branch_s_is_refused(hub: Stand, card: Repository) -> None:
    first = hub.commit(card, {"a.txt": b"1"}, parent=card.head)
    with pytest.raises(WrongParent, match=first.sha):
        hub.commit(card, {"a.txt": b"2"}, parent=card.head)
    assert hub.refs.resolve(card, "main") == first.sha


def test_a_refused_commit_leaves_nothing_behind(hub: Stand, card: Repository) -> None:
    for operation in (Delete("nothing.txt"), DeleteFolder("a"), Copy("x", card.head or "", "y")):
        with pytest.raises(NotFound) as error:
            hub.commit(card, {"a.txt": b"1"}, operation)
        assert (error.value.what, error.value.commit) == ("entry", card.head)
    with pytest.raises(Invalid):
        hub.commit(card, {"A.txt": b"1", "a.txt": b"1"})
    with pytest.raises(Invalid):
        hub.commit(card, {"a": b"1", "a/b": b"1"})
    assert hub.repositories.get("model", "ada/onco") == card


def test_a_branch_or_commit_that_is_not_there_is_said_so(hub: Stand, card: Repository) -> None:
    for ask in (
        lambda: hub.commit(card, {"a.txt": b"1"}, branch="none"),
        lambda: hub.commits.tree(card, "0" * 40),
        lambda: hub.commits.get(card, "0" * 40),
        lambda: hub.commits.list(card, "0" * 40),
    ):
        with pytest.raises(NotFound) as error:
            ask()
        assert error.value.what == "revision"


def test_a_small_file_that_gc_took_is_not_committed(hub: Stand, card: Repository) -> None:
    with pytest.raises(Exception, match="expired before"):
        hub.commit(card, {}, Add(entry_of("a.txt", b"never stored")))


def test_a_namespace_holds_no_more_than_its_quota_each_file_once(hub: Stand, card: Repository) -> None:
    half = b"x" * (QUOTA * 6 // 10)
    hub.commit(card, {"a.txt": half})
    hub.commit(hub.make("ada/copy"), {"a.txt": half})
    with pytest.raises(TooLarge, match=f"quota of ada exceeded: .* of {QUOTA} bytes"):
        hub.commit(card, {"b.txt": b"y" * (QUOTA // 2)})
    hub.accounts.update("ada", quota=10 * QUOTA)
    hub.commit(card, {"b.txt": b"y" * (QUOTA // 2)})
    hub.accounts.update("ada", quota=1)
    with pytest.raises(TooLarge, match="quota of ada exceeded"):
        hub.commit(card, {}, Delete("b.txt"))  # a commit adds its tree


def test_more_files_than_allowed_are_refused() -> None:
    entries = (Add(Entry(f"{n}.txt", "0" * 40, "0" * 64, 1, lfs=False)) for n in range(MOST_FILES + 1))
    with pytest.raises(TooLarge, match=str(MOST_FILES)):
        trees.apply_operations({}, entries, lambda _: {})


def test_a_title_is_needed(hub: Stand, card: Repository) -> None:
    for title in (" ", "x" * 501):
        with pytest.raises(Refused):
            hub.commits.add(card, "main", [], parent=None, title=title, message="", identity=hub.who("ada"))


def test_commits_at_the_same_moment_all_count(hub: Stand, card: Repository) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(4):
                hub.commit(card, {f"{number}-{n}.txt": b"%d %d" % (number, n)})
        except BaseException as error:  # noqa: BLE001 (a thread's error would be lost)
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(paths(hub, card)) == 17
    head = hub.refs.resolve(card, "main")
    assert len(hub.commits.list(card, head)) == 17
    assert hub.repositories.get("model", "ada/onco").head == head


def test_of_those_who_name_one_parent_one_wins(hub: Stand, card: Repository) -> None:
    results: list[str] = []

    def work(number: int) -> None:
        try:
            results.append(hub.commit(card, {f"{number}.txt": b"x"}, parent=card.head).sha)
        except WrongParent:
            results.append("wrong parent")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results)[-3:] == ["wrong parent"] * 3
    assert len(paths(hub, card)) == 2


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
    assert hub.refs.tags(card) == [Ref("v1", head, "hello"), Ref("v2", head, "")]


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


def test_a_name_that_git_would_refuse_is_refused() -> None:
    slashes = ["/a", "a/", "a//b", ".a", "a/.b", "refs/heads/x", "a\\b"]
    signs = ["", "a b", "a..b", "a.lock", "a@{1}", "a\n", "-a", "ä", "a:b", "a~1", "a^", "a?", "a*", "a["]
    for name in (*slashes, *signs, "x" * 251, "a" * 40):
        with pytest.raises(Invalid):
            check_ref(name, "tag")


def test_the_hash_of_someone_s_private_file_is_no_right_to_it(hub: Stand, card: Repository) -> None:
    hidden = hub.make("eve/hidden", private=True)
    secret = hub.sent("eve", "secret.safetensors", b"secret", lfs=True)
    hub.commit(hidden, {}, secret)
    with pytest.raises(Invalid, match="upload the file first") as refused:
        hub.commit(card, {}, secret)
    never = Add(entry_of("secret.safetensors", b"nobody sent this", lfs=True))
    with pytest.raises(Invalid) as unknown:
        hub.commit(card, {}, never)
    # Word for word: whether the hub holds it for others is not told.
    assert str(refused.value).replace(secret.entry.sha256, "") == str(unknown.value).replace(
        never.entry.sha256, ""
    )
    hub.repositories.update(hidden, private=False, gated="manual")
    with pytest.raises(Invalid):
        hub.commit(card, {}, secret)
    hub.repositories.grant(hidden, hub.who("ada").account_id)
    assert hub.commit(card, {}, secret).parent == card.head
