"""Pieces in child processes: each in one of its own, and one that dies costs itself alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kcard.bulk.children import ChildProcesses
from kcard.bulk.piece import Outcome, Piece
from tests.bulk.pieces import MODULE, begun, squares


def test_each_piece_has_a_process_of_its_own_and_one_that_dies_costs_itself(tmp_path: Path) -> None:
    first, last = squares(2, tmp_path)
    dying = Piece("dying", f"{MODULE}:dies", {"folder": str(tmp_path), "times": 1})
    bad = Piece("bad", f"{MODULE}:fails", {"kind": "usage"})
    found = [*ChildProcesses().map([first, dying, bad, last])]
    assert found == [
        Outcome("square 0", {"n": 0, "square": 0}),
        Outcome("dying", error="its process was killed by signal 9, as when memory is short"),
        Outcome("bad", error="the corpus is empty: give another"),
        Outcome("square 1", {"n": 1, "square": 1}),
    ]
    processes = {*begun(tmp_path, "square 0"), *begun(tmp_path, "square 1")}
    assert len(processes - {os.getpid()}) == 2


def test_a_child_does_not_outlive_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from kcard.bulk.children import ChildProcesses\n"
        "from tests.bulk.pieces import squares\n"
        f"list(ChildProcesses().map(squares(1, Path({str(tmp_path)!r}), 600)))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 30
    while not begun(tmp_path, "square 0") and time.monotonic() < deadline:
        time.sleep(0.05)
    (child,) = begun(tmp_path, "square 0")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
