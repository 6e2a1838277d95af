"""Runs `kcard ARGUMENTS` and presses Ctrl-C at a fault point: python interrupted.py POINT ARGUMENTS..."""

import os
import signal
import sys

from kcard import faults
from kcard.cli.main import run

point, sys.argv = sys.argv[1], ["kcard", *sys.argv[2:]]


def press(reached: str) -> None:
    if reached == point:
        os.kill(os.getpid(), signal.SIGINT)


faults.reached = press
run()
