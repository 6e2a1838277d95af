"""The files of a card that engines read: weights, configuration, tokenizer. Passages and their index stay behind."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from kcard.cards.embedded import BASE, base_folder
from kcard.cards.format.folder import Card
from kcard.cards.format.importing.repository import COMPANIONS, INDEX, SAFE

__all__ = ["copy_adapter", "copy_base", "copy_model", "copy_tokenizer"]

ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
MODEL = ("config.json", "generation_config.json")
TOKENIZER = COMPANIONS - {*ADAPTER, *MODEL}


def copy_tokenizer(card: Card, folder: Path) -> None:
    _copy(card.folder, folder, lambda name: name in TOKENIZER)


def copy_model(source: Path, folder: Path) -> None:
    """A whole model with its tokenizer."""
    _copy(source, folder, lambda name: name in TOKENIZER or name in MODEL or _is_weights(name))


def copy_adapter(card: Card, folder: Path, base: str) -> None:
    """The adapter as peft saved it; its config names the base as it is named for the engine."""
    _copy(card.folder, folder, lambda name: name in ADAPTER)
    config = json.loads((folder / ADAPTER[0]).read_text(encoding="utf-8"))
    named = {"base_model_name_or_path": base, "revision": card.manifest.base.revision}
    (folder / ADAPTER[0]).write_text(json.dumps(config | named, indent=2), encoding="utf-8")


def copy_base(folder: Path) -> None:
    """The base in the package, which is in no hub."""
    copy_model(Path(base_folder(BASE)), folder)


def _is_weights(name: str) -> bool:
    return name == INDEX or (SAFE.fullmatch(name) is not None and not name.startswith("adapter"))


def _copy(source: Path, folder: Path, wanted: Callable[[str], bool]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if path.is_file() and wanted(path.name):
            shutil.copyfile(path, folder / path.name)
