"""stdin, stdout and stderr as they are found: closed, full, or unable to show every character."""

import os
import sys

__all__ = ["flush", "prepare"]


def prepare() -> None:
    """Make the three streams safe to use.

    A closed one is opened so that no file takes its number: what is written to a closed stdout fails, as in the
    GNU tools; notes without a stderr go nowhere. A character that the locale has no way to show is escaped.
    """
    ways = (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    for number, (name, way) in enumerate(ways):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, way)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Write out what is still in stdout's buffer; after OSError it is given up, so that exit stays silent."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
