"""add: an adapter on this machine becomes a card: one that peft saved, or that a hypernetwork wrote."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import CardError, UsageError
from kcard.manifest import Base, Manifest, Training

if TYPE_CHECKING:
    from kcard.hub.registry import Hub
    from kcard.hub.repositories.versions import Version
    from kcard.training.corpus import Corpus

__all__ = ["add_adapter"]


def add_adapter(
    path: Path,
    manifest: Manifest,
    hub: "Hub",
    *,
    base: str | None = None,
    scale: float | None = None,
    corpus: str | Path | None = None,
) -> "Version":
    """Publish the adapter at `path`, which is no pickle, as a card of `hub`: a folder of peft, or a safetensors file
    (lora_pairs).

    base    where the adapter does not name its own, or names it wrong
    scale   of an adapter in a file, which does not tell
    corpus  what it was made of, whose passages and index the card has

    Raises UsageError, ModelUnavailable where the base can't be had, and CardError for an adapter that is damaged, does
    not fit the base or changes nothing in it.
    """
    from kcard.hub.store.disk import partial_folder

    read = None if corpus is None else _read(corpus)
    with partial_folder(hub.partial) as folder:
        if path.is_dir() and _is_prefix(path):
            kind, found, record = "prefix", *_copy_prefix(path, folder, base, scale)
        else:
            kind, found, record = "lora", *_write_pairs(path, folder, base, scale)
        _copy_tokenizer(path, folder, found)
        origin = Training(command=f"kcard add {path}", method="none: added as it is", hyperparameters=record)
        _finish(folder, replace(manifest, kind=kind, base=found, training=origin), read)
        return hub.publish(folder)


def _read(corpus: str | Path) -> "Corpus":
    from kcard.training.corpus import read_corpus

    return read_corpus(corpus)


def _is_prefix(folder: Path) -> bool:
    from kcard.cards.lm.engine.prefix import is_prefix
    from kcard.cards.lm.loader import explained

    with explained(CardError, f"{folder}: its adapter_config.json can't be read"):
        return is_prefix(folder)


def _write_pairs(
    path: Path, folder: Path, base: str | None, scale: float | None
) -> tuple[Base, Mapping[str, Any]]:
    """The LoRA adapter as peft saves one; its base, and what it is."""
    from kcard.cards.lm import lora_pairs
    from kcard.cards.lm.linears import linears

    if path.is_dir():
        if scale is not None:
            raise UsageError(
                f"scale {scale}: {path} has an adapter_config.json, which tells it; leave it out"
            )
        pairs = lora_pairs.read_peft(path)
        found, layers = linears(_named(path, base or pairs.base))
    else:
        if scale is None:
            raise UsageError(
                f"{path} does not tell what its matrices are multiplied by: give --scale (of Doc-to-LoRA: lora_alpha)"
            )
        found, layers = linears(_named(path, base))
        pairs = lora_pairs.read_stacked(path, layers, scale)
    lora_pairs.check_fit(pairs, layers, found.name)
    lora_pairs.write(pairs, folder, layers, found.name)
    return found, {"rank": pairs.rank, "layers": len(pairs.modules)}


def _copy_prefix(
    path: Path, folder: Path, base: str | None, scale: float | None
) -> tuple[Base, Mapping[str, Any]]:
    """The prefix as it is; its base, and what it is. That it fits shows when the card is loaded."""
    import json

    import torch

    from kcard.cards.lm.engine import prefix
    from kcard.cards.lm.linears import linears
    from kcard.cards.lm.loader import explained

    if scale is not None:
        raise UsageError(f"scale {scale}: a prefix has none, leave it out")
    with explained(CardError, f"{path} can't be read"):
        tokens = prefix.read(path, torch.float32).tokens
        named = json.loads((path / prefix.CONFIG).read_text(encoding="utf-8")).get("base_model_name_or_path")
    for name in (prefix.CONFIG, prefix.WEIGHTS):
        shutil.copyfile(path / name, folder / name)
    return linears(_named(path, base or named))[0], {"prefix_tokens": tokens}


def _named(path: Path, base: str | None) -> str:
    if not base:
        raise UsageError(f"{path} names no base model: give --base")
    return base


def _copy_tokenizer(path: Path, folder: Path, base: Base) -> None:
    """The adapter's own, where it has one, else the base's."""
    from transformers import AutoTokenizer

    from kcard.cards.embedded import base_folder
    from kcard.cards.lm.loader import explained

    own = path if path.is_dir() and (path / "tokenizer_config.json").is_file() else None
    with explained(CardError, f"the tokenizer of {own or base.name} can't be loaded"):
        found = AutoTokenizer.from_pretrained(
            str(own or base_folder(base.name)), revision=base.revision if own is None else None,
            trust_remote_code=False,
        )  # fmt: skip
        found.save_pretrained(folder)


def _finish(folder: Path, manifest: Manifest, corpus: "Corpus | None") -> None:
    """Prove that the adapter does something to its base, and seal the card."""
    from kcard.cards.format.folder import finish
    from kcard.cards.lm import fingerprinting
    from kcard.training.fingerprint_pairs import pairs

    if corpus is not None:
        made = replace(manifest.training, corpus_sha256=corpus.sha256, passages=len(corpus.passages))
        manifest = replace(manifest, index=True, training=made)
    fingerprinting.write(folder, manifest, [] if corpus is None else pairs(corpus.sample, 0))
    finish(folder, manifest, () if corpus is None else corpus.passages)
