"""The child process that converts pickled weights to safetensors, and does nothing else.

    python -m kcard.cards.pickle_process SOURCE TARGET FILE ...

torch.load(weights_only=True) builds tensors and calls nothing that a pickle names. In case it is ever bypassed, this
process has limits on memory, time and file size, an empty environment, and an audit hook that ends it when anything
tries to start a program or open a connection. Exits with 0, or with one line on stderr.
"""

import json
import os
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kcard.errors import CardError
from kcard.system import limit_process

PROGRAMS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.system")
FORBIDDEN_STARTS = (*PROGRAMS, "subprocess.", "socket.", "pty.", "urllib.")
LIBRARIES = "ctypes."
INDEX = "model.safetensors.index.json"


def main(source: Path, target: Path, names: Sequence[str]) -> None:
    """Convert each pickled weights file to safetensors. Raises CardError for any other file."""
    import torch
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    _limit_resources(sum((source / name).stat().st_size for name in names))
    guard()
    shards: dict[str, str] = {}
    size = 0
    for name in names:
        weights = tensors(source / name)
        size += sum(t.numel() * t.element_size() for t in weights.values())
        shards |= dict.fromkeys(weights, safe_name(name))
        # Tied weights share storage in a pickle; safetensors needs a copy of each.
        save_file(
            {k: t.clone().contiguous() for k, t in weights.items()},
            target / safe_name(name),
            {"format": "pt"},
        )
        (target / safe_name(name)).chmod(0o644)
    if len(names) > 1:
        index = {"metadata": {"total_size": size}, "weight_map": shards}
        (target / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def safe_name(name: str) -> str:
    """Map pytorch_model-00001-of-00002.bin to model-00001-of-00002.safetensors"""
    return name.removeprefix("pytorch_").removesuffix(".bin") + ".safetensors"


def tensors(path: Path) -> dict[str, Any]:
    """Load the tensors of a pickled file by name. Raises CardError if it holds anything else."""
    from pickle import UnpicklingError

    import torch

    try:
        weights = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except (
        UnpicklingError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
    ) as error:
        # Keep the part of torch's message that names the cause.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[0].strip()
        for line in reversed(lines):
            if "Unsupported" in line or "GLOBAL" in line:
                reason = line.strip()
        raise CardError(f"{path.name} holds more than tensors, or is damaged: {reason}") from error
    if not isinstance(weights, dict) or not weights:
        raise CardError(f"{path.name} holds {type(weights).__name__}, not weights by name")
    for name, value in weights.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor) or value.is_sparse:
            raise CardError(f"{path.name}: {name!r} is {type(value).__name__}, not a tensor")
    return weights


def _limit_resources(size: int) -> None:
    """Limit address space, CPU seconds and file size in proportion to `size` bytes of weights."""
    limit_process(
        memory=(8 << 30) + 6 * size, seconds=600 + 60 * (size >> 30), file_size=(64 << 20) + 2 * size
    )


def guard(*, libraries: bool = False) -> None:
    """End this process from now on when it tries to start a program or open a connection.

    `libraries`: whether it may load shared libraries, as many packages do on first use.
    """
    forbidden = FORBIDDEN_STARTS if libraries else (*FORBIDDEN_STARTS, LIBRARIES)

    def forbid(event: str, _arguments: tuple[Any, ...]) -> None:
        if event.startswith(forbidden):
            sys.stderr.write(f"stopped: the file tried {event}\n")
            sys.stderr.flush()
            os._exit(3)

    sys.addaudithook(forbid)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    except (CardError, OSError, MemoryError) as error:
        sys.stderr.write(" ".join(str(error).split()) or type(error).__name__)
        sys.exit(1)
