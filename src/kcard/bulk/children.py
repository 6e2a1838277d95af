"""Pieces in child processes of this one, one after the other; each ends with its piece and gives back its memory."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from kcard.bulk.child import MODULE
from kcard.bulk.piece import Outcome, Piece

__all__ = ["ChildProcesses"]

PATIENCE = 30.0  # seconds in which a child may save its work after Ctrl-C, which it hears too


class ChildProcesses:
    """A Mapper on this machine."""

    def map(self, pieces: Sequence[Piece]) -> Generator[Outcome, None, None]:
        yield from map(_in_child, pieces)


def _in_child(piece: Piece) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="kcard-") as folder:
        result = Path(folder) / "outcome.json"
        command = [sys.executable, "-m", MODULE, str(result)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            assert process.stdin is not None
            try:
                with suppress(BrokenPipeError):  # it ended at once, which its code tells
                    process.stdin.write(json.dumps(asdict(piece)).encode() + b"\n")
                    process.stdin.flush()  # and stays open: the child ends when it closes
                process.wait()
            except BaseException:
                _stop(process)
                raise
        if not result.exists():
            return Outcome(piece.key, error=_ended(process.returncode))
        return Outcome(**json.loads(result.read_text(encoding="utf-8")))


def _stop(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()


def _ended(code: int) -> str:
    how = f"was killed by signal {-code}, as when memory is short" if code < 0 else f"ended with code {code}"
    return f"its process {how}"
