"""Whole models read again from their files without transformers: what they are is known from the first time.

Nothing here is shared between threads, so one model can be read while another one writes; transformers sets torch's
default dtype while it reads, for all threads.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.format.folder import WEIGHTS
from kcard.cards.lm.engine import families
from kcard.cards.lm.engine.decoder import Decoder
from kcard.cards.lm.engine.families import Checkpoint

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Source", "numbers", "read", "source"]

CHUNK = 1 << 24


@dataclass(frozen=True)
class Source:
    """Where the weights of a model lie.

    form    the model's checkpoint without its tensors
    names   of its tensors in the files, by their names in the checkpoint; tied ones have one name in the files
    dtype   of the tensors in memory
    """

    folder: Path
    form: Checkpoint
    names: Mapping[str, str]
    dtype: Any


def source(folder: Path, checkpoint: Checkpoint) -> Source | None:
    """Of a model that was just read from the folder; None where its files have other names for its tensors."""
    there = {name for names in _shapes(folder).values() for name in names}
    by_place = {tensor.data_ptr(): name for name, tensor in checkpoint.tensors.items() if name in there}
    names = {
        name: name if name in there else by_place.get(tensor.data_ptr(), "")
        for name, tensor in checkpoint.tensors.items()
    }
    if not names or not all(names.values()):
        return None
    dtype = next(iter(checkpoint.tensors.values())).dtype
    return Source(folder, replace(checkpoint, tensors={}), names, dtype)


def read(found: Source) -> Decoder:
    """The model, in the memory of the CPU, with every byte of its files read. Raises what reading them does."""
    from safetensors import safe_open

    wanted = set(found.names.values())
    tensors: dict[str, Tensor] = {}
    for path in _files(found.folder):
        _touch(path)
        with safe_open(path, "pt") as file:
            for name in wanted.intersection(file.keys()):
                tensors[name] = file.get_tensor(name).to(found.dtype)
    by_name = {name: tensors[stored] for name, stored in found.names.items()}
    return families.decoder(replace(found.form, tensors=by_name))


def numbers(folder: Path) -> int:
    """How many numbers the model's files hold; 0 where none of them is safetensors."""
    return sum(math.prod(shape) for shapes in _shapes(folder).values() for shape in shapes.values())


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(WEIGHTS))


def _shapes(folder: Path) -> dict[Path, dict[str, list[int]]]:
    """Of the tensors in each file, from its header."""
    from safetensors import safe_open

    found: dict[Path, dict[str, list[int]]] = {}
    for path in _files(folder):
        with safe_open(path, "pt") as file:
            found[path] = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    return found


def _touch(path: Path) -> None:
    """Read the file through, so that none of its pages, which are only mapped, is read while the model writes."""
    buffer = bytearray(CHUNK)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
