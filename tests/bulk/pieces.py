"""Pieces of work that tests hand to workers."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from kcard.bulk.piece import Piece
from kcard.errors import UsageError

MODULE = "tests.bulk.pieces"


def squares(count: int, folder: Path, seconds: float = 0.0) -> list[Piece]:
    """Pieces 0 to count - 1; each leaves a line in `folder` whenever it is begun."""
    arguments = {"folder": str(folder), "seconds": seconds}
    return [Piece(f"square {n}", f"{MODULE}:square", {"n": n, **arguments}) for n in range(count)]


def square(n: int, folder: str, seconds: float) -> dict[str, int]:
    _begun(folder, f"square {n}")
    time.sleep(seconds)
    return {"n": n, "square": n * n}


def fails(kind: str) -> None:
    if kind == "usage":
        raise UsageError("the corpus is empty:\n give another")
    raise ZeroDivisionError("a bug")


def dies(folder: str, times: int) -> str:
    """Kill this process the first `times` times."""
    _begun(folder, "dies")
    if len(begun(Path(folder), "dies")) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def environment(*names: str) -> dict[str, Any]:
    return {"folder": str(Path.cwd()), **{name: os.environ.get(name) for name in names}}


def seen(names: list[str]) -> dict[str, Any]:
    return environment(*names)


def begun(folder: Path, key: str) -> list[int]:
    """The processes that began the piece, in order."""
    path = folder / f"{key}.begun"
    return [int(line) for line in path.read_text(encoding="utf-8").split()] if path.exists() else []


def _begun(folder: str, key: str) -> None:
    with (Path(folder) / f"{key}.begun").open("a", encoding="utf-8") as stream:
        stream.write(f"{os.getpid()}\n")
