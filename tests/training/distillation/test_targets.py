"""The teacher's answers on disk."""

from pathlib import Path

import numpy as np
import pytest

from kcard.errors import UsageError
from kcard.training.distillation import DistilledExample, TeacherAnswer, TeacherAnswers, TopTokens


def target(question: int, length: int = 3, k: int = 4) -> TeacherAnswer:
    rng = np.random.default_rng(question)
    top = TopTokens(
        rng.integers(0, 60_000, (length, k), np.uint32), rng.normal(size=(length, k + 1)).astype(np.float32)
    )
    return TeacherAnswer(question, DistilledExample((1, 2), tuple(range(length)), teacher=top))


def same(one: TeacherAnswer, other: TeacherAnswer) -> bool:
    if one.example is None or other.example is None:
        return one == other
    mine, theirs = one.example.teacher, other.example.teacher
    assert mine is not None
    assert theirs is not None
    tokens = (one.question, one.example.prompt, one.example.target)
    return (
        tokens == (other.question, other.example.prompt, other.example.target)
        and np.array_equal(mine.ids, theirs.ids)
        and np.array_equal(mine.logs, theirs.logs)
    )


WRITTEN = [target(0), TeacherAnswer(1, None, 2), target(2, length=1, k=1), target(3, length=40)]


@pytest.mark.parametrize("is_resumed", [True, False])
def test_what_is_written_is_read(tmp_path: Path, *, is_resumed: bool) -> None:
    targets = TeacherAnswers(tmp_path / "deep" / "t.bin" if is_resumed else None)
    for each in WRITTEN:
        targets.append(each)
    assert len(targets) == 4
    assert all(same(found, each) for found, each in zip(targets, WRITTEN, strict=True))
    assert same(targets[2], WRITTEN[2])


def test_a_resumed_file_goes_on_after_its_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    first = TeacherAnswers(path, "run")
    for each in WRITTEN[:3]:
        first.append(each)
    first.flush()
    path.write_bytes(path.read_bytes()[:-5])
    again = TeacherAnswers(path, "run", resume=True)
    assert len(again) == 2
    for each in WRITTEN[2:]:
        again.append(each)
    again.flush()
    assert all(
        same(result, each)
        for result, each in zip(TeacherAnswers(path, "run", resume=True), WRITTEN, strict=True)
    )


def test_a_new_run_begins_anew_and_another_runs_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    first = TeacherAnswers(path, "run")
    first.append(WRITTEN[0])
    first.flush()
    with pytest.raises(UsageError, match=r"another corpus or other settings: .* train without resume"):
        TeacherAnswers(path, "other run", resume=True)
    assert len(TeacherAnswers(path, "other run")) == 0
