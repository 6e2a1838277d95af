"""Libraries that warn of every oddity of a file: what matters of it becomes our one line."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["silent"]


@contextmanager
def silent(library: str) -> Iterator[None]:
    """Nothing of the library's log is shown; what the user had set is restored after."""
    logger = logging.getLogger(library)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
