"""A journal of bulk work: nothing that is done is lost or done again, whenever a run ends."""

import json
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from kcard.bulk.journal import opened_journal
from kcard.bulk.mapping import mapped
from kcard.bulk.piece import Outcome, Piece, digest, perform
from kcard.errors import UsageError
from tests.bulk.pieces import begun, squares


class Here:
    """A mapper in this process that ends after some pieces, in reversed order."""

    def __init__(self, ends_after: int = 1000) -> None:
        self.done: list[str] = []
        self._left = ends_after

    def map(self, pieces: Sequence[Piece]) -> Generator[Outcome, None, None]:
        for piece in reversed(pieces):
            if not self._left:
                raise KeyboardInterrupt
            self._left -= 1
            self.done.append(piece.key)
            yield perform(piece)


def run(pieces: Sequence[Piece], mapper: Here, path: Path, resume: bool = False) -> list[Outcome]:
    digests = {piece.key: digest(dict(piece.arguments)) for piece in pieces}
    with opened_journal(path, digests, resume) as journal:
        found = [*mapped(pieces, mapper, journal)]
        journal.arrange()
    return found


def test_an_interrupted_run_goes_on_and_ends_in_the_same_bytes(tmp_path: Path) -> None:
    pieces, cut, whole = squares(5, tmp_path), tmp_path / "cut.jsonl", tmp_path / "whole.jsonl"
    run(pieces, Here(), whole)
    with pytest.raises(KeyboardInterrupt):
        run(pieces, Here(ends_after=2), cut)
    assert [json.loads(line)["key"] for line in cut.read_text().splitlines()] == ["square 4", "square 3"]
    again = Here()
    found = run(pieces, again, cut, resume=True)
    assert again.done == ["square 2", "square 1", "square 0"]
    assert sorted(outcome.result["n"] for outcome in found) == [0, 1, 2, 3, 4]
    assert cut.read_bytes() == whole.read_bytes()
    assert [len(begun(tmp_path, piece.key)) for piece in pieces] == [2] * 5


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    pieces, path = squares(3, tmp_path), tmp_path / "j.jsonl"
    run(pieces, Here(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    again = Here()
    run(pieces, again, path, resume=True)
    assert again.done == ["square 2"]
    assert path.read_bytes() == whole


def test_a_piece_that_failed_is_done_again(tmp_path: Path) -> None:
    bad = Piece("bad", "tests.bulk.pieces:fails", {"kind": "usage"})
    path = tmp_path / "j.jsonl"
    (first,) = run([bad], Here(), path)
    assert first.error == "the corpus is empty: give another"
    again = Here()
    run([bad], again, path, resume=True)
    assert again.done == ["bad"]
    assert len(path.read_text().splitlines()) == 1


def test_other_pieces_or_another_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    run(squares(2, tmp_path), Here(), path)
    with pytest.raises(UsageError, match="add --resume"):
        run(squares(2, tmp_path), Here(), path)
    with pytest.raises(UsageError, match="line 1: 'square 0' was done from other input or options"):
        run(squares(2, tmp_path, seconds=0.001), Here(), path, resume=True)
    for strange in ("{}", "[]", "not json", '{"key": 1, "digest": "x"}'):
        path.write_text(strange + "\n", encoding="utf-8")
        with pytest.raises(UsageError, match="line 1 is no line of a journal"):
            run(squares(2, tmp_path), Here(), path, resume=True)


def test_two_runs_do_not_write_the_same_journal(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with opened_journal(path, {}, resume=False), pytest.raises(UsageError, match="another run is writing"):
        run(squares(1, tmp_path), Here(), path)
    run(squares(1, tmp_path), Here(), path)


def test_a_bug_in_one_piece_is_its_outcome() -> None:
    outcome = perform(Piece("bug", "tests.bulk.pieces:fails", {"kind": "bug"}))
    assert outcome == Outcome("bug", error="ZeroDivisionError: a bug")
