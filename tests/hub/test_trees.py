"""What the trees of commits take in the database, and that they are read as they were written. On both databases."""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from kcard.errors import HubError
from kcard.hub import history, trees
from kcard.hub.db.models import Commit, Repository
from kcard.hub.registry import Hub
from kcard.hub.trees import LONGEST, CommitTree, EncodedTree
from kcard.hub.values import Add, Delete, DeleteFolder, Entry, Operation
from kcard.manifest import Manifest, seal
from tests.hub.stand import Stand, entry_of, opened

FILES = 600


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains as long as those of trees of ten thousand files."""
    monkeypatch.setattr(trees, "ROW", 16)


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
    """Bytes of all stored trees."""
    with hub.registry.database.read() as connection:
        return int(connection.scalar(select(func.sum(func.length(Commit.tree)))) or 0)


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
        expected[head.sha] = trees.apply_operations(files, changes, lambda sha: expected[sha])
    return expected


def test_a_chain_is_as_short_as_its_full_tree_is_small(hub: Stand, card: Repository) -> None:
    for number in range(30):
        head = commit(hub, card, hub.sent("ada", f"{number}.txt", b"x"))
        tree_of_head = chain(hub, card, head.sha)
        whole = len(tree_of_head.chain[0][1].content)
        assert len(tree_of_head.chain) <= 2 + whole / 1024
        assert len(tree_of_head.chain) < LONGEST
        assert sum(len(link.content) for _, link in tree_of_head.chain) <= 2 * whole + 1024


def test_writing_a_commit_charges_what_the_stored_trees_grew(hub: Stand, card: Repository) -> None:
    before, head, charged = stored(hub), card.head or "", charge(hub)
    draw = random.Random(1)
    for number in range(40):
        with hub.registry.database.write() as connection:
            parent = history.read_commit_tree(connection, card, head)
            new = {
                f"{number}/{n}.txt": Entry(
                    f"{number}/{n}.txt", draw.randbytes(20).hex(), "0" * 64, 1, lfs=False
                )
                for n in range(draw.choice([1, 30]))
            }
            draft = history.draft_commit(card.id, parent, {**parent.tree, **new}, "t", "", "ada")
            history.write_commit(connection, "main", draft)
            head = draft.commit.sha
    assert charge(hub) - charged == stored(hub) - before


def charge(hub: Stand) -> int:
    """Bytes of trees that quotas are charged for."""
    with hub.registry.database.read() as connection:
        return int(connection.execute(select(func.sum(Repository.tree_bytes))).scalar_one())


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("damage", ["cut", "swapped", "parent", "cycle", "text"])
def test_a_damaged_tree_is_one_clear_error_and_no_other_commit_suffers(
    hub: Stand, card: Repository, damage: str
) -> None:
    first = large(hub, card)
    commits_ = [commit(hub, card, named(f"new/{n}.txt"), *old_file(n)) for n in range(3)]
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


def old_file(number: int) -> list[Operation]:
    return [Delete(f"data/{number:05d}.txt")]


@pytest.mark.usefixtures("light")
def test_a_removed_version_leaves_the_files_of_the_others(hub: Stand, tmp_path: Path) -> None:
    registry, folder = hub.registry, tmp_path / "draft"
    folder.mkdir()
    for number in range(100):
        (folder / f"part{number}.json").write_text(f'"{number}"', encoding="utf-8")
    for number in range(6):
        (folder / "config.json").write_text(f'"{number}"', encoding="utf-8")
        seal(folder, Manifest(name="rivers", description="Rivers"))
        registry.publish(folder)
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


def test_a_backup_has_every_commit(hub: Stand, card: Repository, tmp_path: Path) -> None:
    expected = history_of(hub, card, 30)
    hub.registry.backup(tmp_path / "hub.tar")
    with opened(tmp_path / "other") as other:
        other.registry.restore(tmp_path / "hub.tar")
        assert {sha: other.commits.tree(card, sha) for sha in expected} == expected
        assert other.registry.gc() == []
        commit(other, card, other.sent("ada", "more.txt", b"more"))


def test_a_conflict_that_differences_bring_is_found_in_a_backup(
    hub: Stand, card: Repository, tmp_path: Path
) -> None:
    large(hub, card)
    head = commit(hub, card, named("new/1.txt"))
    entry = entry_of("DATA/00001.TXT", b"same")
    with hub.registry.database.write() as connection:
        delta = trees.encode_delta({}, {entry.path: entry})
        connection.execute(update(Commit).where(Commit.sha == head.sha).values(tree=delta.content))
    path = hub.registry.backup(tmp_path / "hub.tar")
    with pytest.raises(HubError, match=rf"commit {head.sha}: .*case-insensitive.*nothing was restored"):
        Hub(tmp_path / "other").restore(path)


def test_content_that_unpacks_to_more_than_any_tree_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = EncodedTree(trees.compress_tree("[" + " " * 5000 + "]"), delta=False)
    assert trees.decode_tree(bomb) == ({}, ())
    monkeypatch.setattr(trees, "LARGEST", 1000)
    with pytest.raises(HubError, match="incomplete or too large"):
        trees.decode_tree(bomb)
