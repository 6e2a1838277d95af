"""watch: a card follows its folder, one sync after each change."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kcard.api.sync import Synced, sync
from kcard.errors import KcardError, TrainingInterrupted, UsageError

__all__ = ["watch"]

# (inode, time of change in ns, size) of every file by its path; None where it can't be looked at
State = Mapping[str, tuple[int, int, int] | None]


def watch(
    folder: Path | str,
    card: str | Path,
    *,
    interval: float = 2.0,
    done: Callable[[Synced], None],
    failed: Callable[[KcardError], None],
    wait: Callable[[float], None] = time.sleep,
    **given: Any,
) -> None:
    """Sync now, and again whenever the folder has changed and was then left alone for `interval` seconds. Until Ctrl-C.

    It looks at the files every `interval` seconds, which works on network file systems, too. `done` is called after
    each sync, `failed` where one raised an error: the card is as it was then, and the next change is tried again.
    `given`: what kcard.sync takes. Raises UsageError for a wrong interval, KeyboardInterrupt, and TrainingInterrupted.
    """
    if not interval > 0:
        raise UsageError(f"interval {interval} must be above 0")
    root, seen = Path(folder).expanduser(), None
    while True:
        state = _state(root)
        if state != seen:
            while seen is not None and (later := _settled(root, interval, wait)) != state:
                state = later
            try:
                done(sync(root, card, **given))
            except TrainingInterrupted:
                raise
            except KcardError as error:
                failed(error)
            seen = state
        wait(interval)


def _settled(root: Path, interval: float, wait: Callable[[float], None]) -> State:
    wait(interval)
    return _state(root)


def _state(root: Path) -> State:
    """Of a folder's files, hidden ones and links to folders left out; of a file its own."""
    found: dict[str, tuple[int, int, int] | None] = {}
    paths = [root] if root.is_file() else _files(root)
    for path in paths:
        try:
            known = path.stat()
            found[str(path)] = (known.st_ino, known.st_mtime_ns, known.st_size)
        except OSError:
            found[str(path)] = None
    return found


def _files(root: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return found
