"""Commits: all or none of them, on the parent that was meant, of files that the account may use. On both databases."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import delete

from kcard.hub import trees
from kcard.hub.checks.formats import MOST_FILES
from kcard.hub.db.models import Repository, Upload
from kcard.hub.errors import Invalid, NotFound, Refused, TooLarge, WrongParent
from kcard.hub.values import Add, Copy, Delete, DeleteFolder, Entry
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
    unchanged = hub.repositories.get("model", "ada/onco")
    assert (unchanged.head, unchanged.modified, unchanged.tags) == (card.head, card.modified, card.tags)
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


def test_a_file_of_a_public_repository_or_of_one_s_organisation_may_be_used(
    hub: Stand, card: Repository
) -> None:
    shown = hub.make("eve/shown")
    file = hub.sent("eve", "a.safetensors", b"public", lfs=True)
    hub.commit(shown, {}, file)
    assert hub.commit(card, {}, file).parent == card.head
    lab = hub.accounts.add_organisation("lab", owner="eve")
    repository = hub.repositories.create("model", lab.id, "lab/x", private=True, by=hub.who("eve"))
    inner = hub.sent("eve", "b.safetensors", b"inner", lfs=True)
    hub.commit(repository, {}, inner, by="eve")
    with pytest.raises(Invalid):
        hub.commit(card, {}, inner)
    assert hub.commits.add(
        card, "main", [inner], parent=None, title="t", message="", identity=hub.who("ada", lab="read")
    )


def test_a_token_of_one_repository_gives_no_right_to_files_of_others(hub: Stand, card: Repository) -> None:
    mine = hub.make("ada/mine", private=True)
    file = hub.sent("ada", "a.safetensors", b"mine", lfs=True)
    hub.commit(mine, {}, file)
    with hub.registry.database.write() as connection:
        connection.execute(delete(Upload))
    bound = replace(hub.who("ada"), repository_id=card.id)
    with pytest.raises(Invalid):
        hub.commits.add(card, "main", [file], parent=None, title="t", message="", identity=bound)
    assert hub.commit(card, {}, file).parent == card.head


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
