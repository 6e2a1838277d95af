"""Files are written whole or not at all."""

import sys
from pathlib import Path

import pytest

from kcard.io import partial_beside, replacing, write_text
from tests.disks import file_size_limit


def test_a_new_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "notes.txt"
    with pytest.raises(FileNotFoundError):
        write_text(path, "old")
    write_text(path, "old", parents=True)
    write_text(path, "new, and longer: é")
    assert path.read_text(encoding="utf-8") == "new, and longer: é"
    with replacing(path, mode=0o600) as stream:
        stream.write(b"for its owner only")
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_the_old_file_stays_where_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    write_text(path, "old")

    def write() -> None:
        with replacing(path) as stream:
            stream.write(b"half")
            raise RuntimeError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        write()
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is of POSIX")
def test_a_file_for_which_there_is_no_room_is_named_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    write_text(path, "old")
    with file_size_limit(100), pytest.raises(OSError, match="too large") as caught:
        write_text(path, "new" * 100)
    assert caught.value.filename == str(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks: there a day decides")
def test_what_a_killed_process_left_is_deleted_at_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    (tmp_path / ".notes.txt.0.partial").write_text("half", encoding="utf-8")
    write_text(path, "new")
    assert list(tmp_path.iterdir()) == [path]
    left = tmp_path / ".card.0.partial" / "deep"
    left.mkdir(parents=True)
    with partial_beside(tmp_path / "card", Path.mkdir) as folder:
        assert list(folder.iterdir()) == []
        folder.rename(tmp_path / "card")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "card", path]


def test_what_is_being_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    with replacing(path) as first:
        first.write(b"first")
        write_text(path, "second")
        assert path.read_text(encoding="utf-8") == "second"
    assert path.read_text(encoding="utf-8") == "first"
    assert list(tmp_path.iterdir()) == [path]
