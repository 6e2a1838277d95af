"""Models and adapters as GGUF files, written by the user's own llama.cpp (convert_hf_to_gguf.py) and checked here.

llama.cpp's converters belong to the version that will read the files, so kcard runs them rather than write GGUF itself.
"""

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kcard.cards.export.adapter import Adapter
from kcard.errors import CardError, MissingExtra, UsageError, one_line

__all__ = ["Converter", "architecture", "check_adapter", "check_model"]

MODEL, LORA = "convert_hf_to_gguf.py", "convert_lora_to_gguf.py"


class Converter:
    """llama.cpp's converters.

    Raises UsageError where `path` is neither convert_hf_to_gguf.py nor the folder in which it lies with
    convert_lora_to_gguf.py, MissingExtra where the package gguf is not installed.
    """

    def __init__(self, path: Path | str | None) -> None:
        if path is None:
            raise UsageError(
                f"GGUF files are written by llama.cpp's own converter: give it with --converter path/to/{MODEL} "
                "(git clone https://github.com/ggml-org/llama.cpp)"
            )
        given = Path(path).expanduser().absolute()
        self.folder = given if given.is_dir() else given.parent
        if missing := [name for name in (MODEL, LORA) if not (self.folder / name).is_file()]:
            raise UsageError(f"--converter {path}: {self.folder} has no {' and no '.join(missing)}")
        if find_spec("gguf") is None:
            raise MissingExtra("checking GGUF files needs gguf: pip install 'kcard[gguf]'")

    def model(self, folder: Path, target: Path, small: bool) -> None:
        """A whole model with its tokenizer; `small`: in float32, else in the float type it is stored in."""
        self._run(MODEL, [str(folder), "--outfile", str(target), "--outtype", "f32" if small else "auto"])

    def adapter(self, folder: Path, base: Path, target: Path) -> None:
        """A LoRA adapter; of the base only its config is read."""
        self._run(LORA, [str(folder), "--base", str(base), "--outfile", str(target), "--outtype", "f32"])

    def _run(self, script: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, str(self.folder / script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
            raise CardError(
                f"{script} ended with code {done.returncode} on {arguments[0]}: {one_line(Exception(said[-1]))}: "
                "see whether your llama.cpp supports this model"
            )


def check_adapter(path: Path, adapter: Adapter, base: Path) -> None:
    """CardError unless the file holds this adapter, for the architecture of the GGUF file `base`."""
    reader = _read(path)
    found = {
        "type": _field(reader, "general.type"),
        "adapter type": _field(reader, "adapter.type"),
        "alpha": _field(reader, "adapter.lora.alpha"),
        "pairs": sum(1 for tensor in reader.tensors if tensor.name.endswith(".lora_a")),
        "rank": max((int(t.shape[-1]) for t in reader.tensors if t.name.endswith(".lora_a")), default=0),
        "architecture": _field(reader, "general.architecture"),
    }
    wanted = {
        "type": "adapter",
        "adapter type": "lora",
        "alpha": adapter.alpha,
        "pairs": adapter.pairs,
        "rank": adapter.rank,
        "architecture": architecture(base),
    }
    _compare(path, found, wanted)


def check_model(path: Path, tokens: int, bos: bool | None) -> None:
    """CardError unless the file holds a model with at least so many tokens; `bos`: whether a text begins with a bos
    token that the engine adds; None where the model has no bos token."""
    reader = _read(path)
    if (listed := reader.get_field("tokenizer.ggml.tokens")) is None or len(listed.data) < tokens:
        _compare(path, {"tokens": 0 if listed is None else len(listed.data)}, {"tokens": tokens})
    if bos is not None and (adds := _field(reader, "tokenizer.ggml.add_bos_token")) is not None:
        _compare(path, {"adds a bos token": adds}, {"adds a bos token": bos})
    if not reader.tensors:
        _compare(path, {"tensors": 0}, {"tensors": "some"})


def architecture(path: Path) -> str:
    """What a GGUF file says its model's architecture is; UsageError for a file that is none."""
    return str(_field(_read(path, UsageError), "general.architecture"))


def _read(path: Path, kind: "type[CardError] | type[UsageError]" = CardError) -> Any:
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except (OSError, ValueError, IndexError) as error:
        raise kind(f"{path} is no GGUF file: {one_line(error)}") from error


def _field(reader: Any, name: str) -> Any:
    found = reader.get_field(name)
    return None if found is None else found.contents()


def _compare(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for key, value in wanted.items():
        if found[key] != value:
            raise CardError(
                f"{path.name} was not converted as it should be: {key} is {found[key]!r}, not {value!r}: use the "
                "converter of another llama.cpp"
            )
