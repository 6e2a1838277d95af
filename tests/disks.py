"""A limit on the size of files, which a write meets as it meets a full disk."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["file_size_limit", "process_with_file_size_limit"]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let this process write no file of more bytes. Python writes no bytecode meanwhile: it would be cut and stay."""
    import resource

    before, writes_nothing = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = writes_nothing


def process_with_file_size_limit(size: int, **environment: str) -> dict[str, Any]:
    """Return the arguments of subprocess.run for a process with that limit."""
    import resource

    return {
        "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        "env": {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    }
