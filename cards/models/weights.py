"""The weights of cards and bases as decoders of the engine, read from files or from a transformers model.

Embedded cards are read without transformers, whose import takes longer than a whole answer.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kcard.cards.card import WEIGHTS, Card
from kcard.cards.models.batched import families
from kcard.cards.models.batched.decoder import Decoder, Rotary, UnsupportedModel
from kcard.cards.models.batched.families import ModelCheckpoint
from kcard.cards.models.loader import MAX_FLOAT32_PARAMETERS, Loader, explained, in_single_precision
from kcard.embedded.opt import base_folder
from kcard.errors import CardError, ModelUnavailable

DEFAULTS = {
    "layer_norm_elementwise_affine": True,
    "do_layer_norm_before": True,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class Weights:
    """A card's model, or the base of its adapter. `ends`: the end-of-text ids of its generation config."""

    decoder: Decoder
    ends: int | list[int] | None


def read(card: Card, models: Loader) -> Weights:
    """Load the weights. Raises UnsupportedModel if the engine lacks the architecture, ModelUnavailable if an adapter's
    base is unavailable, CardError if the card's own model can't be read."""
    adapts = card.manifest.is_adapter
    if card.manifest.base.name or not adapts:
        folder = card.folder
        error: type[CardError | ModelUnavailable] = CardError
        if adapts:
            folder = Path(base_folder(card.manifest.base.name))
            error = ModelUnavailable
        with explained(error, f"card {card.name!r}: {folder} can't be loaded"):
            weights = embedded(folder, models.device)
        if weights is not None:
            if adapts:
                models.check_digest(card)
            return weights
    model = models.model(card)
    try:
        decoder = families.decoder(of_model(model))
    except UnsupportedModel:
        models.release(card, model)
        raise
    return Weights(decoder, model.generation_config.eos_token_id)


def size(folder: Path, device: str) -> int:
    """Return the bytes that the whole model in a folder takes on the device, by its safetensors headers; without
    safetensors, the size of its files."""
    from safetensors import safe_open

    count = 0
    for path in folder.glob(WEIGHTS):
        with safe_open(path, "pt") as file:
            count += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    if not count:
        return sum(path.stat().st_size for path in folder.glob("*.bin"))
    if in_single_precision(count, device):
        return 4 * count
    return 2 * count


def embedded(folder: Path, device: str) -> Weights | None:
    """Load the model in a folder if it is a small OPT like those of embedded cards; None if it is another."""
    weights = folder / "model.safetensors"
    # Larger models may run in bfloat16, which of_folder does not support.
    if not weights.is_file() or weights.stat().st_size >= 4 * MAX_FLOAT32_PARAMETERS:
        return None
    if not families.is_plain_opt(_json(folder / "config.json")):
        return None
    return Weights(families.decoder(of_folder(folder, device)), _ends(folder))


def of_model(model: Any) -> ModelCheckpoint:
    from transformers.activations import ACT2FN

    config = model.config
    embedding = getattr(model.base_model, "rotary_emb", None)
    rotary = None
    if embedding is not None and "dynamic" not in embedding.rope_type and embedding.rope_type != "longrope":
        rotary = Rotary(embedding.inv_freq.float(), float(embedding.attention_scaling))
    return ModelCheckpoint(
        type(model).__name__,
        config,
        model.state_dict(),
        ACT2FN[getattr(config, "activation_function", None) or config.hidden_act],
        rotary,
    )


def of_folder(folder: Path, device: str) -> ModelCheckpoint:
    """Load a small OPT like embedded cards (families.PLAIN_OPT), float32.

    Raises ValueError if its weights don't fit its config.
    """
    import torch
    from safetensors.torch import load_file

    config = SimpleNamespace(**DEFAULTS | _json(folder / "config.json"))
    tensors = load_file(folder / "model.safetensors")
    for name, shape in _opt_shapes(config).items():
        if tensors[name].shape != shape:
            short = name.removeprefix("model.decoder.")
            raise ValueError(f"{short} is {tuple(tensors[name].shape)}, but must be {shape}")
    tensors = {name: tensor.to(device=device, dtype=torch.float32) for name, tensor in tensors.items()}
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"]
    return ModelCheckpoint("OPTForCausalLM", config, tensors, torch.nn.ReLU())


def _opt_shapes(config: Any) -> dict[str, tuple[int, ...]]:
    width, inner = config.hidden_size, config.ffn_dim
    layer = {
        **{f"self_attn.{part}_proj": (width, width) for part in ("q", "k", "v", "out")},
        "fc1": (inner, width),
        "fc2": (width, inner),
        "self_attn_layer_norm": (width,),
        "final_layer_norm": (width,),
    }
    modules: dict[str, tuple[int, ...]] = {"final_layer_norm": (width,)}
    for number in range(config.num_hidden_layers):
        for name, shape in layer.items():
            modules[f"layers.{number}.{name}"] = shape
    prefix = "model.decoder"
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}.embed_tokens.weight": (config.vocab_size, width),
        f"{prefix}.embed_positions.weight": (config.max_position_embeddings + families.OFFSET, width),
    }
    for name, shape in modules.items():
        shapes[f"{prefix}.{name}.weight"] = shape
        shapes[f"{prefix}.{name}.bias"] = shape[:1]
    return shapes


def limits(folder: Path) -> tuple[int | list[int] | None, int | None]:
    """Return a model's end-of-text ids and maximum context in tokens, from its configs alone."""
    config = _json(folder / "config.json")
    if "max_position_embeddings" in config and "eos_token_id" in config:
        return _ends(folder), config["max_position_embeddings"]
    from transformers import AutoConfig, GenerationConfig

    whole = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    has_own = (folder / "generation_config.json").is_file()
    generation = (
        GenerationConfig.from_pretrained(folder) if has_own else GenerationConfig.from_model_config(whole)
    )
    return generation.eos_token_id, getattr(whole, "max_position_embeddings", None)


def _ends(folder: Path) -> int | list[int] | None:
    path = folder / "generation_config.json"
    if not path.is_file():
        path = folder / "config.json"
    ends: int | list[int] | None = _json(path).get("eos_token_id")
    return ends


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
