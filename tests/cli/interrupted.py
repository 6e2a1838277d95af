"""Runs `kcard ARGUMENTS` and presses Ctrl-C before an effect: python -m tests.cli.interrupted EFFECT ARGUMENTS..."""

import os
import signal
import sys

from kcard.cli.main import run
from tests.effects import watch

point, sys.argv = sys.argv[1], ["kcard", *sys.argv[2:]]


def press(reached: str) -> None:
    if reached.startswith(point):
        os.kill(os.getpid(), signal.SIGINT)


watch(press)
run()
