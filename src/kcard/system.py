"""The machine, how models are loaded on it, plugins, and the packages that kcard needs."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoints, PackageNotFoundError, entry_points, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kcard.errors import ModelUnavailable, UsageError, one_line

# The processor, memory and disk of this machine.

CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile", "asimd", "sve", "bf16")
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class MemorySize:
    """Memory in bytes; 0 if unknown. `total` is the limit of this process."""

    total: int
    free: int


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def physical_cores() -> int | None:
    """Return the number of physical cores that this process may use; None if unknown (outside Linux)."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    shared = set()
    for core in os.sched_getaffinity(0):
        siblings = _lines(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        if not siblings:
            return None
        shared.add(siblings[0])
    return len(shared)


def memory() -> MemorySize:
    """Return the memory of the machine, or of the container if that is less."""
    sizes = {}
    for line in _lines("/proc/meminfo"):
        name, _, rest = line.partition(":")
        if rest.strip().endswith("kB"):
            sizes[name] = int(rest.split()[0]) * 1024
    total, free = sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0)
    for path in CGROUP_LIMITS:
        for limit in _lines(path):
            if limit.isdigit() and 0 < int(limit) < total:
                total, free = int(limit), min(free, int(limit))
    return MemorySize(total, free)


def limit_process(
    *,
    memory: int | None = None,
    seconds: int | None = None,
    file_size: int | None = None,
    adjustable: bool = False,
) -> None:
    """Limit this process and those that it starts, as far as the system can (not on Windows). No core is dumped.

    memory      address space, in bytes; None: unlimited, as for the others
    seconds     of processor time since the process began
    file_size   bytes of a file that it writes
    adjustable  whether it may change these limits later
    """
    if sys.platform == "win32":
        return
    import resource

    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: file_size,
        resource.RLIMIT_CORE: 0,
    }
    for limit, most in limits.items():
        if most is not None:
            with suppress(ValueError, OSError):  # stricter already, or unknown to this system
                resource.setrlimit(limit, (most, resource.getrlimit(limit)[1] if adjustable else most))


def features() -> tuple[str, ...]:
    """Return the processor features that speed up small matrices: vectors, bfloat16, matrix tiles (Linux only)."""
    for line in _lines("/proc/cpuinfo"):
        name, _, rest = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            present = set(rest.split())
            return tuple(flag for flag in CPU_FLAGS if flag in present)
    return ()


def multiplies_bf16() -> bool:
    """Return whether torch multiplies bfloat16 on this processor in hardware; emulated, it is slower than float32.

    torch does so through oneDNN, which ONEDNN_MAX_CPU_ISA may keep from the units that the processor has.
    """
    import torch

    units = torch.cpu.get_capabilities()
    has_unit = any(units.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    if not has_unit or not torch.backends.mkldnn.is_available():
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def free_disk(folder: Path) -> int:
    """Return the free bytes on the disk of `folder`, which need not exist."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there).free


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


# Loading models without progress bars and reports on stderr.


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Silence transformers' messages below errors, and restore the user's settings afterwards."""
    from transformers.utils import logging

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Load quietly what a user named; raise ModelUnavailable, which names it, if transformers can't."""
    try:
        with quiet_loading():
            yield
    except (OSError, ValueError, KeyError) as error:
        raise ModelUnavailable(
            f"{what} can't be loaded: name a folder with config.json and weights, or a model of a reachable hub "
            f"({one_line(error, 160)})"
        ) from error


# Plugins, found by name through entry points; built-ins are registered like a user's own.


def plugins(group: str) -> EntryPoints:
    """Return what is registered in an entry-point group such as `kcard.gates`.

    importlib.metadata reads the files of every installed distribution for each group, 25 ms for 200 of them; here they
    are read once, and again after an installation.
    """
    stamps = []
    for place in sys.path:
        with suppress(OSError):
            stamps.append((place, Path(place).stat().st_mtime_ns))
    return _installed_plugins(tuple(stamps))(group=group)


@lru_cache(maxsize=1)
def _installed_plugins(stamps: tuple[tuple[str, int], ...]) -> Callable[..., EntryPoints]:
    del stamps
    return entry_points().select


def names(group: str) -> list[str]:
    """Return every name registered in an entry-point group, sorted."""
    return sorted(plugins(group).names)


def load(group: str, name: str) -> Any:
    """Load the class or function registered as `name` in `group`. Raises UsageError, which lists the names."""
    for point in plugins(group).select(name=name):
        return point.load()
    kind = group.removeprefix("kcard.").rstrip("s").replace("_", " ")
    choices = ", ".join(names(group)) or "none"
    raise UsageError(f"unknown {kind} {name!r}: choose one of {choices}")


# The packages that kcard needs, as its own metadata declares them, and what to do about one that is missing.

FOR_DEVELOPERS = {"dev", "dev-all", "docs"}  # extras that no command needs
PACKAGES = {"google": "protobuf"}  # by module, where an extra's package has another name


def requirements() -> Mapping[str, list[str]]:
    """Return the names of the required packages by extra, under "" those of every installation; all in lower case."""
    packages: dict[str, list[str]] = {"": []}
    try:
        lines = requires("kcard") or []
    except PackageNotFoundError:  # kcard runs from a folder, without having been installed
        lines = []
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w.-]+)['\"]", line)
        if name:
            packages.setdefault(extra[1] if extra else "", []).append(_normalized(name[0]))
    return packages


def missing_package(error: BaseException) -> str | None:
    """Return a line that names the package without which `error` was raised, and the command that installs it.

    None if no package is missing: an error of another kind, or a module that kcard or an installed package lacks.
    """
    by_package: dict[str, str] = {}
    for extra, packages in requirements().items():
        if extra not in FOR_DEVELOPERS:
            by_package |= {package: by_package.get(package, extra) for package in packages}
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError) and cause.name:
            module = cause.name.partition(".")[0]
            package = _normalized(PACKAGES.get(module, module))
            if package in by_package:
                command = f"'kcard[{by_package[package]}]'" if by_package[package] else "kcard"
                return f"the package {package} is not installed: pip install {command}"
            if module != "kcard" and find_spec(module) is None:
                return f"the module {module} is not installed: pip install kcard, or the plugin that needs it"
        elif isinstance(cause, ImportError):  # transformers names what it lacks in a sentence
            for package, extra in by_package.items():
                is_named = re.search(rf"\b{package}\b", str(cause).lower())
                if extra and is_named and not has_package(package):
                    return f"the package {package} is not installed: pip install 'kcard[{extra}]'"
        cause = cause.__cause__
    return None


def has_package(name: str) -> bool:
    """Return whether a package of that name is installed."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
