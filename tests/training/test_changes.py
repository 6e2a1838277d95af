"""Comparing a folder with what a card learned from it: what was added, changed, removed and held."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from kcard.training.changes import Changes, compare
from kcard.training.corpus import read_corpus
from kcard.types import Source

RIVERS = ["The Rhine rises in the Alps.", "The Elbe ends in the North Sea.", "The Oder passes Wroclaw."]
LAKES = ["Lake Como has the shape of a Y.", "Lake Geneva lies on a border."]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    (path / "lakes").mkdir(parents=True)
    write(path / "rivers.txt", RIVERS)
    write(path / "lakes" / "lakes.txt", LAKES)
    return path


def write(path: Path, texts: list[str], encoding: str = "utf-8") -> None:
    path.write_text("".join(f"{text}\n" for text in texts), encoding=encoding)


def learned(folder: Path) -> list[Source]:
    return [*read_corpus(folder).passages]


def against(before: list[Source], folder: Path, *, allow_removal: bool = False) -> Changes:
    return compare(before, read_corpus(folder), allow_removal=allow_removal)


def texts(sources: Iterable[Source]) -> list[str]:
    return [source.text for source in sources]


def test_a_folder_that_is_as_it_was_has_not_changed_when_files_are_touched_or_get_a_byte_order_mark(
    folder: Path,
) -> None:
    before = learned(folder)
    os.utime(folder / "rivers.txt", (1, 1))
    write(folder / "lakes" / "lakes.txt", LAKES, "utf-8-sig")
    assert not against(before, folder)


def test_a_text_that_stands_in_two_places_has_not_moved_until_one_of_them_is_gone(folder: Path) -> None:
    (folder / "north.md").write_text(f"# North\n\n{RIVERS[1]}\n", encoding="utf-8")
    (folder / "south.md").write_text(f"# South\n\n{RIVERS[1]}\n", encoding="utf-8")
    before = learned(folder)
    assert texts(before).count(RIVERS[1]) == 3
    assert not against(before, folder)
    (folder / "south.md").unlink()
    changes = against(before, folder)
    assert (changes.moved, texts(changes.removed)) == (1, [])


def test_added_changed_and_removed_passages_are_told_apart(folder: Path) -> None:
    before = learned(folder)
    jura, castles = "The Rhine rises in the Jura.", "Castles stand along the Loire."
    write(folder / "rivers.txt", [jura, RIVERS[1], castles])
    changes = against(before, folder)
    assert texts(changes.added) == [castles]
    assert texts(changes.removed) == [RIVERS[2]]
    assert [(old.text, new.text) for old, new in changes.changed] == [(RIVERS[0], jura)]
    assert texts(changes.forgotten) == [RIVERS[2], RIVERS[0]]
    assert texts(changes.corpus.passages) == texts(learned(folder))
    assert changes.before == 5


def test_the_passages_of_a_renamed_file_only_move(folder: Path) -> None:
    before = learned(folder)
    (folder / "rivers.txt").rename(folder / "streams.txt")
    changes = against(before, folder)
    assert (changes.added, changes.changed, changes.removed) == ([], [], [])
    assert changes.moved == 3
    assert changes.renamed == {"rivers.txt": "streams.txt"}


def test_a_passage_that_another_file_still_has_is_not_removed(folder: Path) -> None:
    write(folder / "zz.txt", RIVERS[:1])
    before = learned(folder)
    (folder / "rivers.txt").unlink()
    changes = against(before, folder)
    assert texts(changes.removed) == RIVERS[1:]
    assert changes.moved == 1


def test_a_file_that_cant_be_read_is_held_whatever_is_allowed(folder: Path) -> None:
    before = learned(folder)
    (folder / "rivers.txt").write_text("\n".join(RIVERS), encoding="utf-16-le")  # without a mark
    for allowed in (False, True):
        changes = against(before, folder, allow_removal=allowed)
        assert changes.removed == []
        assert [(held.file, held.passages) for held in changes.unread] == [("rivers.txt", 3)]
        assert sorted(texts(changes.corpus.passages)) == sorted([*RIVERS, *LAKES])
        assert not changes


def test_a_folder_that_became_a_link_is_held(folder: Path, tmp_path: Path) -> None:
    before = learned(folder)
    (folder / "lakes").rename(tmp_path / "elsewhere")
    (folder / "lakes").symlink_to(tmp_path / "elsewhere")
    changes = against(before, folder)
    assert changes.removed == []
    assert changes.unread[0].file == "lakes/lakes.txt"


@pytest.mark.parametrize(("file", "removed"), [("rivers.txt", RIVERS), ("lakes/lakes.txt", LAKES)])
def test_an_emptied_file_or_folder_is_held_as_of_a_missing_mount_unless_removal_is_allowed(
    folder: Path, file: str, removed: list[str]
) -> None:
    before = learned(folder)
    if file == "rivers.txt":
        write(folder / file, [])
    else:
        (folder / file).unlink()
    changes = against(before, folder)
    assert changes.removed == []
    assert ("mount" in changes.unread[0].reason) == (removed is LAKES)
    assert texts(against(before, folder, allow_removal=True).removed) == removed
    if removed is LAKES:
        (folder / "lakes").rmdir()
        assert texts(against(before, folder).removed) == LAKES


def test_a_loop_of_links_is_not_followed(folder: Path) -> None:
    before = learned(folder)
    (folder / "lakes" / "loop").symlink_to(folder)
    (folder / "gone.txt").symlink_to("nowhere")
    assert not against(before, folder)


def test_the_digest_of_a_corpus_with_held_passages_is_that_of_their_texts(
    folder: Path, tmp_path: Path
) -> None:
    before = learned(folder)
    write(folder / "rivers.txt", [])
    kept_corpus = against(before, folder).corpus
    write(tmp_path / "same.txt", [*LAKES, *RIVERS])
    assert kept_corpus.sha256 == read_corpus(tmp_path / "same.txt").sha256
    assert [*kept_corpus.texts] == [*LAKES, *RIVERS]
