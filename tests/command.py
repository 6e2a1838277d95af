"""Runs kcard: as a process of its own, or in this process, which has imported everything once."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

__all__ = ["Done", "Kcard", "kcard_process"]


class Done(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The line that says what is wrong: there is only one, no traceback, and nothing on stdout."""
        lines = [line for line in self.err.splitlines() if line.startswith("kcard: ")]
        assert self.code != 0, self.err
        assert self.out == ""
        assert len(lines) == 1, self.err
        assert self.err.rstrip().endswith(lines[0]), self.err
        assert "Traceback" not in self.err
        assert "a bug in kcard" not in self.err
        assert "Value error" not in self.err
        return lines[0]


# The fixture `kcard`, which runs a command in this process.
Kcard: TypeAlias = Callable[..., Done]


def kcard_process(*arguments: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run kcard as a process of its own, without stdin."""
    return subprocess.run(
        [sys.executable, "-m", "kcard", *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        check=False,
    )
