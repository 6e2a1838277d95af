"""An adapter as peft saved it: what an engine must apply of it, and why one would not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcard.cards.export.engines import Engine
from kcard.errors import CardError
from kcard.json_values import parse

__all__ = ["Adapter", "misfits", "read"]

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Ways to begin that leave the base as it is, so that the saved pairs are all there is.
BEGINNINGS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga")
PREFIX = "base_model.model."
# What a LoRA pair, or a feature that the config tells of, is called.
KNOWN = (".lora_A.", ".lora_B.", "lora_embedding", "lora_magnitude_vector", "trainable_tokens", ".bias")
# Features of peft's LoRA that are more than a pair of matrices beside a linear layer.
FEATURES: Mapping[str, str] = {
    "trainable_token_indices": "token embeddings of its own",
    "modules_to_save": "whole layers of its own (modules_to_save)",
    "use_dora": "DoRA",
    "lora_bias": "biases",
    "rank_pattern": "ranks that differ between layers",
    "alpha_pattern": "scales that differ between layers",
    "alora_invocation_tokens": "aLoRA",
    "layer_replication": "repeated layers",
    "target_parameters": "LoRA on single parameters",
    "use_qalora": "QALoRA",
    "use_bdlora": "block-diagonal LoRA",
}


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter. `pairs`: of matrices, one for each linear layer that it adapts; `extras`: what it has besides, in
    words."""

    rank: int
    alpha: float
    rslora: bool
    pairs: int
    extras: tuple[str, ...]


def read(folder: Path) -> Adapter:
    """The adapter in a card's folder; CardError where it can't be read. Only the names of its tensors are read."""
    from safetensors import safe_open

    try:
        config = parse((folder / CONFIG).read_text(encoding="utf-8"))
        with safe_open(folder / WEIGHTS, framework="numpy") as tensors:
            names = list(tensors.keys())
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
    except Exception as error:  # safetensors raises a type of its own
        raise CardError(
            f"the adapter in {folder} can't be read: {error!r}: fetch or train it again"
        ) from error
    pairs = [name for name in names if name.endswith(".lora_A.weight")]
    rslora = bool(config.get("use_rslora"))
    return Adapter(rank, alpha, rslora, len(pairs), tuple(_extras(config, names)))


def _extras(config: Mapping[str, Any], names: list[str]) -> Iterator[str]:
    if config.get("peft_type", "LORA") != "LORA":
        yield f"the method {config['peft_type']}"
    for key, words in FEATURES.items():
        if config.get(key):
            yield words
    if config.get("bias", "none") != "none" and not config.get("lora_bias"):
        yield "biases"
    begun = config.get("init_lora_weights", True)
    if isinstance(begun, str) and begun.lower() not in BEGINNINGS:
        yield f"a base that {begun} has changed"
    if any("lora_embedding" in name or ".lm_head." in name for name in names):
        yield "LoRA on embeddings or the head"
    if others := [name for name in names if not any(part in name for part in KNOWN)]:
        yield f"tensors that are no LoRA pair, such as {others[0].removeprefix(PREFIX)}"


def misfits(adapter: Adapter, engine: Engine, model_type: str | None) -> list[str]:
    """Why the engine would not apply the adapter as it was trained, in words; empty where it would.

    model_type  of the base, as its config.json names it; None where it is not at hand
    """
    found = [f"it has {extra}" for extra in adapter.extras]
    if adapter.rslora and not engine.rslora:
        found.append("it is scaled by rsLoRA")
    if engine.ranks and adapter.rank > engine.ranks[-1]:
        found.append(f"its rank is {adapter.rank}, more than {engine.ranks[-1]}")
    if model_type in engine.without_lora:
        found.append(f"its base is a model of type {model_type}")
    return found
