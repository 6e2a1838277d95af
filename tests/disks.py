"""What lies on a disk, and a limit on the size of files, which a write meets as it meets a full disk."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["file_size_limit", "files_below", "holding", "process_with_file_size_limit"]


def files_below(folder: Path) -> dict[str, bytes]:
    """The content of every file below a folder, hidden ones too, by its path."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def holding(folder: Path, text: str) -> list[str]:
    """The files below a folder in which a text stands, hidden ones too."""
    return [path for path, content in files_below(folder).items() if text.encode() in content]


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
