"""The journal of bulk work: a JSON line for each piece that is done, on disk before the next is looked at.

A run that was killed at any moment goes on from it: what it holds is not done again. The lines stand in the order in
which pieces were done, until `arrange` puts them in the order of the pieces.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kcard.bulk.piece import Outcome
from kcard.errors import UsageError
from kcard.files import replacing
from kcard.json_values import parse
from kcard.rows import Row, append_rows, json_line

if sys.platform != "win32":
    import fcntl

__all__ = ["Journal", "opened_journal"]


class Journal:
    """The outcomes of an earlier run and of this one; see opened_journal."""

    def __init__(self, path: Path, digests: Mapping[str, str], earlier: Mapping[str, Outcome]) -> None:
        self.path = path
        self._digests = digests
        self._outcomes = {**earlier}

    @property
    def done(self) -> Mapping[str, Outcome]:
        """The pieces that were done without an error, by key."""
        return {key: outcome for key, outcome in self._outcomes.items() if not outcome.error}

    def add(self, *outcomes: Outcome) -> None:
        """Keep outcomes; they are on disk when this returns."""
        append_rows(self.path, [self._row(outcome) for outcome in outcomes])
        self._outcomes.update({outcome.key: outcome for outcome in outcomes})

    def arrange(self) -> None:
        """Write the last outcome of each piece, in the order of the pieces."""
        with replacing(self.path) as stream:
            stream.writelines(
                json_line(self._row(self._outcomes[key])) for key in self._digests if key in self._outcomes
            )

    def _row(self, outcome: Outcome) -> Row:
        found = {"error": outcome.error} if outcome.error else {"result": outcome.result}
        return {"key": outcome.key, "digest": self._digests[outcome.key], **found}


@contextmanager
def opened_journal(path: Path, digests: Mapping[str, str], resume: bool) -> Iterator[Journal]:
    """The journal at `path`, which no other process may open meanwhile.

    digests  of what is to be done, by the keys of the pieces, in their order

    Raises UsageError where there is a journal and the run is not to be resumed, where it belongs to other pieces, and
    where it can't be read or written.
    """
    if not resume and path.exists() and path.stat().st_size:
        raise UsageError(f"{path} already exists: add --resume to continue it, or choose another --output")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("ab")
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror or error}") from error
    with stream:
        _lock(stream.fileno(), path)
        yield Journal(path, digests, _read(path, digests))


def _lock(handle: int, path: Path) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"another run is writing {path}: wait for it, or choose another --output") from None
    except OSError:  # a network file system without locks
        return


def _read(path: Path, digests: Mapping[str, str]) -> dict[str, Outcome]:
    """The last outcome of each piece; a last line that was cut off is removed."""
    found: dict[str, Outcome] = {}
    whole = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                os.truncate(path, whole)
                break
            whole += len(line)
            row = _parsed(line, f"{path}, line {number}")
            if digests.get(row["key"]) != row["digest"]:
                raise UsageError(
                    f"{path}, line {number}: {row['key']!r} was done from other input or options: repeat those, or "
                    "choose another --output"
                )
            found[row["key"]] = Outcome(row["key"], row.get("result"), row.get("error", ""))
    return found


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = parse(line.decode())
    except ValueError as error:
        raise UsageError(f"{where} is no line of a journal: {error}") from error
    kinds = {"key": str, "digest": str, "error": str}
    if not isinstance(row, dict) or not {"key", "digest"} <= row.keys() <= {*kinds, "result"}:
        raise UsageError(f"{where} is no line of a journal: choose another --output")
    if any(not isinstance(row[name], kind) for name, kind in kinds.items() if name in row):
        raise UsageError(f"{where} is no line of a journal: choose another --output")
    return row
