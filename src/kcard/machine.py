"""What this machine has: processor, memory, disk. Facts only; what follows from them is said elsewhere."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MemorySize", "cores", "features", "free_disk", "memory"]

CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile", "asimd", "sve", "bf16")
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class MemorySize:
    """In bytes; 0 where the system does not say. `total` is what this process may have."""

    total: int
    free: int


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> MemorySize:
    """Memory of the machine, or of the container where that is less."""
    found = {}
    for line in _lines("/proc/meminfo"):
        name, _, rest = line.partition(":")
        if rest.strip().endswith("kB"):
            found[name] = int(rest.split()[0]) * 1024
    total, free = found.get("MemTotal", 0), found.get("MemAvailable", 0)
    for path in CGROUP_LIMITS:
        for limit in _lines(path):
            if limit.isdigit() and 0 < int(limit) < total:
                total, free = int(limit), min(free, int(limit))
    return MemorySize(total, free)


def features() -> tuple[str, ...]:
    """What of the processor matters to small matrices: vector widths, bfloat16, matrix tiles (Linux only)."""
    for line in _lines("/proc/cpuinfo"):
        name, _, rest = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            present = set(rest.split())
            return tuple(flag for flag in CPU_FLAGS if flag in present)
    return ()


def free_disk(folder: Path) -> int:
    """Free bytes where `folder` lies, or would lie."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there).free


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
