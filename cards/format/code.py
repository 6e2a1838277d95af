"""Refuses cards and models that only run with code of their own, before transformers or peft sees them.

transformers offers to run such code ("[y/N]") unless it is told not to; kcard never asks, and never runs it.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kcard.errors import CardError

__all__ = ["CONFIGS", "refuse_code"]

CONFIGS = (
    "config.json",
    "tokenizer_config.json",
    "adapter_config.json",
    "generation_config.json",
    "processor_config.json",
    "preprocessor_config.json",
)
# Keys that name code: of the repository or of another.
CODE = ("auto_map", "custom_pipelines")
# Keys whose value names an implementation; one with a slash is a repository with compiled code.
KERNELS = ("attn_implementation", "_attn_implementation", "experts_implementation")
SOURCES = (".py", ".pyc", ".so", ".pyd")


def refuse_code(folder: Path, name: str, files: Iterable[str] = ()) -> None:
    """Raise CardError, which names the file, for a folder with a config that names code, or for such a file.

    name   of the card or repository, for the message
    files  paths in the folder that are looked at by name
    """
    for path in files:
        if path.lower().endswith(SOURCES):
            raise _refused(name, path)
    for path in CONFIGS:
        if (folder / path).is_file() and (key := _code_key(_read(folder / path, name))) is not None:
            raise _refused(name, f"{key} in {path}")


def _read(path: Path, name: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CardError(f"{name}: its {path.name} is not JSON: {error}") from error


def _code_key(config: Any) -> str | None:
    for key, value in _pairs(config):
        if key in CODE and isinstance(value, dict | list | str) and value:
            return key
        if key in KERNELS and "/" in str(value):
            return key
    return None


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """The keys and values of all objects within."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield from found.items()
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def _refused(name: str, what: str) -> CardError:
    return CardError(
        f"{name} needs code of its own ({what}), which kcard never executes: choose another model, or remove it and "
        "seal the card again"
    )
