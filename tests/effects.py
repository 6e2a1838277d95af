"""What a process changes on the disk and in databases, one effect after the other, so that a test can kill or interrupt
it before or after any of them."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

__all__ = ["watch"]

# Of the module os; pathlib, shutil and tempfile go through these.
CALLS = ("chmod", "link", "mkdir", "rename", "replace", "rmdir", "unlink")
WRITES = ("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP")


def watch(reached: Callable[[str], object]) -> Callable[[], None]:
    """Call `reached` before and after each effect of this process; return what ends that.

    Before: "rename NAME", NAME that of the file or folder that is there afterwards; "insert", "update" and so on for a
    statement of SQL; "commit". After a call on the disk: the same with " done".
    """
    originals = {call: getattr(os, call) for call in CALLS}

    def watched(call: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def made(*paths: Any, **options: Any) -> Any:
            targets = [path for path in paths if isinstance(path, str | os.PathLike)]
            point = f"{call} {Path(targets[-1]).name if targets else ''}"
            reached(point)
            result = original(*paths, **options)
            reached(f"{point} done")
            return result

        return made

    def statement(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        if (verb := text.lstrip().split(None, 1)[0].upper()) in WRITES:
            reached(verb.lower())

    def commit(_connection: Any) -> None:
        reached("commit")

    for call, original in originals.items():
        setattr(os, call, watched(call, original))
    event.listen(Engine, "before_cursor_execute", statement)
    event.listen(Engine, "commit", commit)

    def end() -> None:
        for call, original in originals.items():
            setattr(os, call, original)
        event.remove(Engine, "before_cursor_execute", statement)
        event.remove(Engine, "commit", commit)

    return end
