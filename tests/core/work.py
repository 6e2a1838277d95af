"""Work that tests hand to workers."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from kcard.errors import TrainingInterrupted, UsageError

__all__ = ["do", "seen"]


def do(card: str, folder: str, how: str = "") -> dict[str, Any]:
    """Leave a line in a file of `folder` and return the card's length, unless `how` says to fail."""
    begun = Path(folder) / f"{card}.begun"
    with begun.open("a", encoding="utf-8") as stream:
        stream.write(f"{os.getpid()}\n")
    times = len(begun.read_text(encoding="utf-8").splitlines())
    if how == "fails":
        raise UsageError("the corpus is empty:\n give another")
    if how == "bug":
        raise ZeroDivisionError("a bug")
    if how == "stops":
        raise TrainingInterrupted("stopped")
    if how == "dies" or (how == "dies once" and times == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep({"lasts": 600, "takes a second": 1}.get(how, 0))
    return {"length": len(card)}


def seen(names: list[str]) -> dict[str, Any]:
    """What a worker sees of the environment."""
    return {"folder": str(Path.cwd()), **{name: os.environ.get(name) for name in names}}
