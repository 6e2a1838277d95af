"""Commits and trees: all or none, on the parent that was meant, of what the account may use; on both databases."""

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from kcard.errors import HubError
from kcard.hub import history, trees
from kcard.hub.checks.paths import MAX_FILES
from kcard.hub.db.models import Commit, Repository
from kcard.hub.errors import Conflict, Invalid, NotFound, Refused, TooLarge, WrongParent
from kcard.hub.history import check_ref
from kcard.hub.trees import MAX_CHAIN_COMMITS, CommitTree, EncodedTree
from kcard.hub.values import Add, Delete, DeleteFolder, Entry, Operation
from tests.hub.postgres import on_both
from tests.hub.stand import Stand, entry_of, seal_card

README = b"---\nlicense: mit\nlanguage: en\ntags: [oncology]\npipeline_tag: text-generation\n---\n# Hello\n"


def paths(hub: Stand, card: Repository, revision: str = "main") -> list[str]:
    return list(hub.commits.tree(card, hub.refs.resolve(card, revision)))


@on_both
def test_a_commit_adds_replaces_and_deletes_in_one_step(hub: Stand, card: Repository) -> None:
    first = hub.commit(card, {"a.txt": b"1", "sub/b.txt": b"2", "sub/c.txt": b"3", "sub.txt": b"4"})
    second = hub.commit(card, {"a.txt": b"new"}, DeleteFolder("sub"), Delete("sub.txt"))
    tree = hub.commits.tree(card, second.sha)
    assert list(tree) == [".gitattributes", "a.txt"]
    assert tree["a.txt"].size == 3
    assert second.parent == first.sha
    assert hub.commits.get(card, second.sha) == second
    assert [c.sha for c in hub.commits.list(card, second.sha)] == [second.sha, first.sha, card.head]
    assert [c.sha for c in hub.commits.list(card, second.sha, size=2)] == [second.sha, first.sha]


def test_what_is_shown_and_found_follows_main_and_no_other_branch(hub: Stand, card: Repository) -> None:
    hub.refs.create_branch(card, "draft", card.head or "")
    hub.commit(card, {"README.md": README}, branch="draft")
    unchanged = hub.repositories.get("model", "ada/onco")
    assert (unchanged.head, unchanged.modified, unchanged.tags) == (card.head, card.modified, card.tags)
    commit = hub.commit(card, {"README.md": README, "w.txt": b"abc"})
    shown = hub.repositories.get("model", "ada/onco")
    assert (shown.head, shown.modified, shown.card["license"]) == (commit.sha, commit.date, "mit")
    assert {"oncology", "license:mit", "en", "text-generation"} <= set(shown.tags)
    assert shown.pipeline_tag == "text-generation"
    assert shown.size == sum(e.size for e in hub.commits.tree(card, commit.sha).values())


def test_a_refused_commit_leaves_nothing_behind(hub: Stand, card: Repository) -> None:
    for operation in (Delete("nothing.txt"), DeleteFolder("a")):
        with pytest.raises(NotFound) as error:
            hub.commit(card, {"a.txt": b"1"}, operation)
        assert (error.value.what, error.value.commit) == ("entry", card.head)
    for files in ({"A.txt": b"1", "a.txt": b"1"}, {"a": b"1", "a/b": b"1"}):
        with pytest.raises(Invalid):
            hub.commit(card, files)
    for title in (" ", "x" * 501):
        with pytest.raises(Refused):
            hub.commits.add(card, "main", [], parent=None, title=title, message="", identity=hub.who("ada"))
    with pytest.raises(Exception, match="expired before"):  # gc took a small file
        hub.commit(card, {}, Add(entry_of("a.txt", b"never stored")))
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


def test_more_files_than_allowed_are_refused() -> None:
    entries = (Add(Entry(f"{n}.txt", "0" * 40, "0" * 64, 1, lfs=False)) for n in range(MAX_FILES + 1))
    with pytest.raises(TooLarge, match=str(MAX_FILES)):
        trees.apply_operations({}, entries)


def at_once(work: Callable[[int], object]) -> None:
    """Do the work in four threads, with their numbers. Raises what one of them raised."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@on_both
def test_commits_at_the_same_moment_all_count(hub: Stand, card: Repository) -> None:
    def work(number: int) -> None:
        for n in range(4):
            hub.commit(card, {f"{number}-{n}.txt": b"%d %d" % (number, n)})

    at_once(work)
    assert len(paths(hub, card)) == 17
    head = hub.refs.resolve(card, "main")
    assert len(hub.commits.list(card, head)) == 17
    assert hub.repositories.get("model", "ada/onco").head == head


@on_both
def test_of_those_who_name_one_parent_one_wins(hub: Stand, card: Repository) -> None:
    refused: list[int] = []

    def work(number: int) -> None:
        try:
            hub.commit(card, {f"{number}.txt": b"x"}, parent=card.head)
        except WrongParent:
            refused.append(number)

    at_once(work)
    assert len(refused) == 3
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


def test_branches_and_tags_are_made_once_listed_main_first_and_deleted(hub: Stand, card: Repository) -> None:
    head, other = card.head or "", hub.make("ada/other").head or ""
    for name in ("a", "z"):
        hub.refs.create_branch(card, name, head)
    hub.refs.create_branch(card, "a", head, exist_ok=True)
    hub.refs.create_tag(card, "v2", head)
    hub.refs.create_tag(card, "v1", head, "hello")
    assert [ref.name for ref in hub.refs.branches(card)] == ["main", "a", "z"]
    tags = [(tag.name, tag.sha, tag.message) for tag in hub.refs.tags(card)]
    assert tags == [("v1", head, "hello"), ("v2", head, "")]
    for make in (hub.refs.create_branch, hub.refs.create_tag):
        for name in ("a", "v1", "main"):  # a branch of a tag's name would say what the tag means
            with pytest.raises(Conflict):
                make(card, name, head)
        with pytest.raises(NotFound):
            make(card, "v3", other)  # a commit of another repository
    commit = hub.commit(card, {"a.txt": b"1"}, branch="a")
    assert hub.refs.resolve(card, "v1") == head
    hub.refs.delete_tag(card, "v1", hub.who("ada"))
    hub.refs.delete_branch(card, "a")
    assert hub.refs.resolve(card, commit.sha) == commit.sha  # it is still there
    for delete, name in ((hub.refs.delete_tag, "v1"), (hub.refs.delete_branch, "a")):
        with pytest.raises(NotFound):
            delete(card, name)
    with pytest.raises(Invalid, match="main"):
        hub.refs.delete_branch(card, "main")


def test_a_name_that_git_would_refuse_is_refused() -> None:
    slashes = ["/a", "a/", "a//b", ".a", "a/.b", "refs/heads/x", "a\\b"]
    signs = ["", "a b", "a..b", "a.lock", "a@{1}", "a\n", "-a", "ä", "a:b", "a~1", "a^", "a?", "a*", "a["]
    for name in (*slashes, *signs, "x" * 251, "a" * 40):
        with pytest.raises(Invalid):
            check_ref(name, "tag")


# What the trees of commits take in the database, and that they are read as they were written. On both databases.


FILES = 600


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains as long as those of trees of ten thousand files."""
    monkeypatch.setattr(trees, "ROW_BYTES", 16)


def named(path: str) -> Add:
    """A file of the repository whose content was sent before."""
    return Add(entry_of(path, b"same"))


def commit(hub: Stand, card: Repository, *operations: Operation, branch: str = "main") -> Commit:
    return hub.commit(card, {}, *operations, branch=branch)


def large(hub: Stand, card: Repository) -> Commit:
    """A commit of many files; their ids don't compress."""
    hub.sent("ada", "x", b"same")
    draw = random.Random(0)
    entry = entry_of("x", b"same")
    files = (replace(entry, path=f"data/{n:05d}.txt", oid=draw.randbytes(20).hex()) for n in range(FILES))
    return commit(hub, card, *map(Add, files))


def stored(hub: Stand) -> int:
    """Bytes of all stored trees and of the commits' texts, which are ASCII."""
    columns = (Commit.tree, Commit.title, Commit.message)
    with hub.registry.database.read() as connection:
        return sum(int(connection.scalar(select(func.sum(func.length(column)))) or 0) for column in columns)


def chain(hub: Stand, card: Repository, sha: str) -> CommitTree:
    with hub.registry.database.read() as connection:
        return history.read_commit_tree(connection, card, sha)


def test_a_small_change_of_a_large_tree_takes_few_bytes(hub: Stand, card: Repository) -> None:
    large(hub, card)
    before = stored(hub)
    for number in range(12):
        head = commit(hub, card, named(f"new/{number}.txt"))
    assert before > 12_000
    assert stored(hub) - before < 12 * 500
    assert len(hub.commits.tree(card, head.sha)) == FILES + 13


def test_branches_of_one_commit_take_few_bytes_wherever_they_start(hub: Stand, card: Repository) -> None:
    """Each start is the last commit of a chain that is as heavy as its full tree, so that the next one shortens it."""
    large(hub, card)
    before, count = stored(hub), 0
    while True:  # up to the first commit that rewrites another
        head = commit(hub, card, named(f"new/{count}.txt"))
        count += 1
        if len(chain(hub, card, head.sha).chain) < count:
            break
    assert head.parent is not None
    for number in range(20):
        hub.refs.create_branch(card, f"b{number}", head.parent)
        commit(hub, card, named(f"other/{number}.txt"), branch=f"b{number}")
        count += 1
    assert stored(hub) - before < 2 * before  # the one full tree, and differences


@pytest.mark.usefixtures("light")
def test_every_commit_has_the_files_that_it_was_written_with(hub: Stand, card: Repository) -> None:
    expected = history_of(hub, card, 30)
    for sha, files in expected.items():
        assert hub.commits.tree(card, sha) == files
        assert list(hub.commits.tree(card, sha)) == sorted(files)
    assert any(len(chain(hub, card, sha).chain) > 2 for sha in expected)


def history_of(hub: Stand, card: Repository, count: int) -> dict[str, Mapping[str, Entry]]:
    """Random changes on branches that start anywhere; the files of every commit by its sha."""
    draw, heads = random.Random(7), {"main": card.head or ""}
    expected: dict[str, Mapping[str, Entry]] = {heads["main"]: hub.commits.tree(card, heads["main"])}
    contents = [bytes([number]) for number in range(8)]
    for content in contents:
        hub.sent("ada", "x", content)
    for number in range(count):
        if number % 20 == 19:
            heads[f"b{number}"] = draw.choice([*expected])
            hub.refs.create_branch(card, f"b{number}", heads[f"b{number}"])
        branch = draw.choice([*heads])
        files = expected[heads[branch]]
        paths = [f"{draw.choice('abc')}/{draw.randrange(400)}.txt" for _ in range(draw.choice([1, 2, 60]))]
        changes: list[Operation] = [Add(entry_of(path, draw.choice(contents))) for path in paths]
        if len(files) > 5 and number % 3 == 0:
            gone = draw.choice([path for path in files if path not in paths])
            changes.append(Delete(gone) if number % 2 else DeleteFolder(gone.partition("/")[0]))
            if gone == ".gitattributes":
                changes[-1] = Delete(gone)
        head = commit(hub, card, *changes, branch=branch)
        heads[branch] = head.sha
        expected[head.sha] = trees.apply_operations(files, changes)
    return expected


def test_a_chain_is_as_short_as_its_full_tree_is_small(hub: Stand, card: Repository) -> None:
    for number in range(30):
        head = commit(hub, card, hub.sent("ada", f"{number}.txt", b"x"))
        tree_of_head = chain(hub, card, head.sha)
        whole = len(tree_of_head.chain[0][1].content)
        assert len(tree_of_head.chain) <= 2 + whole / 1024
        assert len(tree_of_head.chain) < MAX_CHAIN_COMMITS
        assert sum(len(link.content) for _, link in tree_of_head.chain) <= 2 * whole + 1024


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("damage", ["cut", "swapped", "parent", "cycle", "text"])
def test_a_damaged_tree_is_one_clear_error_and_no_other_commit_suffers(
    hub: Stand, card: Repository, damage: str
) -> None:
    first = large(hub, card)
    changes = [(named(f"new/{number}.txt"), Delete(f"data/{number:05d}.txt")) for number in range(3)]
    commits_ = [commit(hub, card, *change) for change in changes]
    middle = commits_[1].sha
    content = dict(chain(hub, card, commits_[2].sha).chain)[commits_[2].sha].content
    values: dict[str, dict[str, Any]] = {
        "cut": {"tree": content[:-5]},
        "swapped": {"tree": content},
        "parent": {"parent": "0" * 40},
        "cycle": {"parent": commits_[2].sha},
        "text": {"tree": trees.compress_tree("[1,2]")},
    }
    with hub.registry.database.write() as connection:
        connection.execute(update(Commit).where(Commit.sha == middle).values(values[damage]))
    with pytest.raises(
        HubError, match=rf"the tree of commit {commits_[2].sha} is damaged .*restore a backup"
    ):
        hub.commits.tree(card, commits_[2].sha)
    assert len(hub.commits.tree(card, commits_[0].sha)) == FILES + 1
    assert len(hub.commits.tree(card, first.sha)) == FILES + 1


@pytest.mark.usefixtures("light")
def test_a_removed_version_leaves_the_files_of_the_others(hub: Stand, tmp_path: Path) -> None:
    registry = hub.registry
    parts = {f"part{number}.json": b"%d" % number for number in range(100)}
    for number in range(6):
        registry.publish(
            seal_card(tmp_path / "draft", "rivers", files={**parts, "config.json": b"%d" % number})
        )
    card = hub.repositories.get("model", "library/rivers")
    lengths = [len(chain(hub, card, ref.sha).chain) for ref in hub.refs.tags(card)]
    assert max(lengths) > 1  # some are stored as differences
    for number in (3, 2, 6, 1):
        registry.remove(f"rivers@v{number}")
    for ref in hub.refs.tags(card):
        files = {path: entry.sha256 for path, entry in hub.commits.tree(card, ref.sha).items()}
        assert files == registry.get(f"rivers@{ref.name}").files
    assert [ref.name for ref in hub.refs.tags(card)] == ["v4", "v5"]
    assert registry.verify() == []
    assert registry.gc() == []


def test_content_that_unpacks_to_more_than_any_tree_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = EncodedTree(trees.compress_tree("[" + " " * 5000 + "]"), delta=False)
    assert trees.decode_tree(bomb) == ({}, ())
    monkeypatch.setattr(trees, "MAX_TREE_BYTES", 1000)
    with pytest.raises(HubError, match="incomplete or too large"):
        trees.decode_tree(bomb)
