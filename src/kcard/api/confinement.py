"""What child processes that read cards of others may do and use: cards are not trusted."""

import contextlib
import os
import sys
from pathlib import Path

__all__ = ["environment", "limit"]

MOST_WRITTEN = 256 << 20  # bytes of a file
NICE = 10  # requests to the hub come first


def environment(folder: Path) -> dict[str, str]:
    """Nothing of this process but the packages and the models on this machine: no token, no URL.

    folder  the home of the child
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    return {
        "HF_HUB_CACHE": HF_HUB_CACHE,
        "HF_HUB_OFFLINE": "1",
        "HOME": str(folder),
        "KCARD_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TOKENIZERS_PARALLELISM": "false",
    }


def limit(memory: int, seconds: int | None = None) -> None:
    """Limit this process: address space in bytes, processor time (None: unlimited), the size of files, priority."""
    if sys.platform == "win32":
        return
    import resource

    with contextlib.suppress(OSError):  # a sandbox may forbid it
        os.nice(NICE)
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_FSIZE: MOST_WRITTEN,
        resource.RLIMIT_CORE: 0,
    }
    if seconds is not None:
        limits[resource.RLIMIT_CPU] = seconds
    for each, most in limits.items():
        with contextlib.suppress(ValueError, OSError):  # stricter already, or unknown to this system
            resource.setrlimit(each, (most, most))
