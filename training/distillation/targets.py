"""What the teacher answered, on disk: one record a question, so that an interrupted run goes on where it was."""

import tempfile
import weakref
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from kcard.errors import CardError, UsageError
from kcard.training.distillation.loss import DistilledExample, TopTokens

__all__ = ["BYTES", "Target", "Targets"]

BYTES = 8  # of a token of the teacher's distribution: its id and its log-probability
LENGTH = 4  # bytes that tell the length of a record
HEAD = 4  # numbers that begin a record


@dataclass(frozen=True)
class Target:
    """The teacher's answer to question number `question`; `example` None: left out, for the reason of that number."""

    question: int
    example: DistilledExample | None
    reason: int = 0


class Targets:
    """Records in a file, in the order of the questions they belong to; 8 bytes of memory each.

    path         None: a file that goes with the process
    fingerprint  of the run, without which a file is not gone on with
    resume       whether to keep the records that are there

    Raises UsageError for a file of another run, and CardError where the disk is full.
    """

    def __init__(self, path: Path | None, fingerprint: str = "", resume: bool = False) -> None:
        self._starts = array("Q")
        self._file = _opened(path, resume)
        weakref.finalize(self, self._file.close)
        mark = fingerprint.encode()
        if self._read_record(0) is None:
            self._file.truncate(0)
            self._end = 0
            self._write(mark)
        elif self._read_record(0) != mark:
            raise UsageError(
                f"{path} belongs to another corpus or other settings: repeat the original arguments, or train "
                "without resume"
            )
        else:
            self._end = LENGTH + len(mark)
            while (record := self._read_record(self._end)) is not None:
                self._starts.append(self._end)
                self._end += LENGTH + len(record)
            self._file.truncate(self._end)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Target:
        record = self._read_record(self._starts[index])
        assert record is not None
        return _decoded(record)

    def __iter__(self) -> Iterator[Target]:
        return (self[index] for index in range(len(self)))

    def append(self, target: Target) -> None:
        start = self._end
        self._write(_encoded(target))
        self._starts.append(start)

    def flush(self) -> None:
        self._file.flush()

    def _write(self, record: bytes) -> None:
        try:
            self._file.seek(self._end)
            self._file.write(len(record).to_bytes(LENGTH, "little") + record)
        except OSError as error:
            raise CardError(
                f"the teacher's answers can't be written to {self._file.name}: {error.strerror}; free some space, or "
                "keep fewer tokens (--teacher-top-k)"
            ) from error
        self._end += LENGTH + len(record)

    def _read_record(self, start: int) -> bytes | None:
        """None where no whole record stands."""
        self._file.seek(start)
        length = int.from_bytes(self._file.read(LENGTH), "little")
        record = self._file.read(length)
        return record if record and len(record) == length else None


def _opened(path: Path | None, resume: bool) -> IO[bytes]:
    try:
        if path is None:
            return tempfile.TemporaryFile()
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("r+b" if resume and path.is_file() else "w+b")
    except OSError as error:
        raise CardError(f"the teacher's answers can't be written to {path}: {error.strerror}") from error


def _encoded(target: Target) -> bytes:
    if (example := target.example) is None:
        return np.array([target.question, target.reason, 0, 0], np.uint32).tobytes()
    assert example.teacher is not None
    ids, logs = example.teacher.ids, example.teacher.logs
    head = [target.question, 0, len(example.prompt), len(example.target)]
    numbers = np.array([*head, *example.prompt, *example.target], np.uint32)
    return numbers.tobytes() + ids.astype(np.uint32).tobytes() + logs.astype(np.float32).tobytes()


def _decoded(record: bytes) -> Target:
    numbers = np.frombuffer(record, np.uint32)
    question, reason, prompt, target = map(int, numbers[:HEAD])
    if not target:
        return Target(question, None, reason)
    first = HEAD + prompt + target
    k = (len(numbers) - first - target) // (2 * target)
    ids = numbers[first : first + target * k].reshape(target, k)
    logs: npt.NDArray[np.float32] = np.frombuffer(record, np.float32)[first + target * k :]
    top = TopTokens(ids, logs.reshape(target, k + 1))
    tokens = numbers[HEAD:first].tolist()
    return Target(question, DistilledExample(tuple(tokens[:prompt]), tuple(tokens[prompt:]), teacher=top))
