"""Trained prefixes: keys and values of tokens that precede every prompt (Li and Liang, 2021, section 4.2; "Cartridges",
Eyuboglu et al., 2025, section 3), read from a peft adapter without a model, and stacked on one base.

peft saves one table, (tokens, layers x 2 x kv_heads x width), for its types CARTRIDGE and PREFIX_TUNING alike. Cards
that run together must have prefixes of one length.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.models.batched.decoder import Decoder, Past

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TABLE = "prompt_embeddings"
TYPES = ("CARTRIDGE", "PREFIX_TUNING")
SIZES = ("num_virtual_tokens", "num_layers", "num_attention_heads", "token_dim")
# The decoder's field for a prefix, as its module name in ranks.
PLACE = "past"


@dataclass(frozen=True)
class Prefix:
    """table: (layers, 2, kv_heads, tokens, width), keys and values of each layer; for rotary positions, keys are
    already rotated to the first positions of the text."""

    table: "Tensor"

    @property
    def tokens(self) -> int:
        return self.table.shape[3]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.table.numel() * self.table.element_size()

    @property
    def ranks(self) -> dict[str, int]:
        """Its tokens, as adapters' ranks by module."""
        return {PLACE: self.tokens}


def is_prefix(folder: Path) -> bool:
    """Return whether a folder's adapter is a prefix, by its config. Raises what reading it does."""
    return _config(folder).get("peft_type") in TYPES


def check(folder: Path) -> None:
    """Raise ValueError if the adapter in a folder is not a prefix of keys and values, by its config."""
    config = _config(folder)
    if config.get("peft_type") not in TYPES:
        raise ValueError(
            f"{folder / CONFIG}: peft_type {config.get('peft_type')!r} is not {' or '.join(TYPES)}"
        )
    for name in SIZES:
        if not isinstance(number := config.get(name), int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"{folder / CONFIG}: {name} must be a number above 0, but is {number!r}")
    if config["token_dim"] % config["num_attention_heads"]:
        raise ValueError(
            f"{folder / CONFIG}: token_dim {config['token_dim']} is not a multiple of num_attention_heads "
            f"{config['num_attention_heads']}"
        )
    if config.get("num_transformer_submodules") not in (None, 1):
        raise ValueError(
            f"{folder / CONFIG}: a prefix for an encoder and a decoder fits no causal language model"
        )


def read(folder: Path, dtype: Any) -> Prefix:
    """Load the prefix in a folder. Raises ValueError if its file does not match its config or has non-finite
    numbers."""
    import torch
    from safetensors import safe_open

    check(folder)
    tokens, layers, heads, width = (_config(folder)[name] for name in SIZES)
    with safe_open(folder / WEIGHTS, "pt") as file:
        if (names := [*file.keys()]) != [TABLE]:
            raise ValueError(
                f"{folder / WEIGHTS} must hold {TABLE!r} alone, but has {', '.join(names) or 'nothing'}"
            )
        tensor: Tensor = file.get_tensor(TABLE)
    if tuple(tensor.shape) != (expected := (tokens, layers * 2 * width)):
        raise ValueError(
            f"{folder / WEIGHTS}: {TABLE} must have the shape {expected}, but has {tuple(tensor.shape)}"
        )
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{folder / WEIGHTS}: {TABLE} contains non-finite numbers: train the card again")
    table = tensor.to(dtype).view(tokens, layers, 2, heads, width // heads)
    return Prefix(table.permute(1, 2, 3, 0, 4).contiguous())


def check_fit(decoder: Decoder, prefix: Prefix) -> None:
    """Raise ValueError if the prefix does not fit this base."""
    shape = decoder.shape
    check_sizes(prefix, len(decoder.layers), shape.kv_heads, shape.width, decoder.longest)


def check_sizes(prefix: Prefix, layers: int, heads: int, width: int, longest: int) -> None:
    """Raise ValueError if the prefix does not fit a model with that many layers, key and value heads of that width, and
    a context of `longest` tokens."""
    own = prefix.table.shape[0], prefix.table.shape[2], prefix.table.shape[4]
    if own != (layers, heads, width):
        raise ValueError(
            f"it is for {own[0]} layers with {own[1]} heads of {own[2]} numbers, and the base has {layers} with "
            f"{heads} of {width}"
        )
    if prefix.tokens >= longest:
        raise ValueError(
            f"it has {prefix.tokens} tokens, and the base reads {longest}, which leaves none for a question"
        )


def added(decoder: Decoder, ranks: Sequence[Mapping[str, int]]) -> int:
    """Return the bytes of stacked prefixes. ranks: of each, as in Prefix."""
    shape, size = decoder.shape, decoder.embed.table.element_size()
    each = len(decoder.layers) * 2 * shape.kv_heads * shape.width * size
    return sum(own.get(PLACE, 0) for own in ranks) * each


def stacked(decoder: Decoder, prefixes: Sequence[Prefix]) -> Decoder:
    """Stack the prefixes of several cards, all of one length; rows must be ordered by card."""
    import torch

    tables = torch.stack([prefix.table for prefix in prefixes]).to(decoder.embed.table.device)
    layers = tuple((tables[:, number, 0], tables[:, number, 1]) for number in range(tables.shape[1]))
    return replace(decoder, past=Past(layers))


def _config(folder: Path) -> dict[str, Any]:
    config: Any = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return config if isinstance(config, dict) else {}
