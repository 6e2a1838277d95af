"""The replies of an LLM that was asked for study material, kept on disk, so that none is asked for twice."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from kcard.errors import UsageError
from kcard.json_values import build
from kcard.request import Reply
from kcard.rows import append_rows
from kcard.training.study.tasks import Assignment

__all__ = ["Replies", "ReplyRow"]


@dataclass(frozen=True)
class ReplyRow:
    """One reply. `request`: digest of the LLM's name, the task and the texts, which is what it depends on. `cut`: see
    Reply."""

    request: str
    task: str
    by: str
    passages: tuple[str, ...]
    text: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    cut: bool = False


@dataclass
class Replies:
    """Those in a file of JSON lines. `by`: the LLM. Several threads may keep replies at a time."""

    path: Path
    by: str
    _rows: dict[str, ReplyRow] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def read(cls, path: Path, by: str) -> "Replies":
        """Those that are there; none where there is no file. A last line that was not written whole is cut off, and
        lines that are no replies are passed over. Raises UsageError where the file can't be read."""
        found = cls(path, by)
        if not path.exists():
            return found
        try:
            content = path.read_bytes()
            os.truncate(path, content.rfind(b"\n") + 1)
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}") from error
        for line in content.splitlines():
            try:
                row = build(ReplyRow, json.loads(line))
            except (ValueError, TypeError):
                continue
            found._rows[row.request] = row
        return found

    def __iter__(self) -> Iterator[ReplyRow]:
        return iter([*self._rows.values()])

    def row(self, assignment: Assignment) -> ReplyRow | None:
        return self._rows.get(self._key(assignment))

    def keep(self, assignment: Assignment, reply: Reply) -> None:
        """On disk when this returns. Halves of characters (lone surrogates), which no file can hold, become "?"."""
        row = ReplyRow(
            self._key(assignment),
            assignment.task,
            self.by,
            assignment.digests,
            reply.text.encode("utf-8", "replace").decode(),
            reply.tokens_in,
            reply.tokens_out,
            reply.cut,
        )
        with self._lock:
            append_rows(self.path, [vars(row)])
            self._rows[row.request] = row

    def _key(self, assignment: Assignment) -> str:
        told = json.dumps([self.by, assignment.task, *assignment.texts])
        return hashlib.sha256(told.encode()).hexdigest()
