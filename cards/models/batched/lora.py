"""LoRA adapters: checked for stackability, read from their files without a model, and stacked on one base.

Adapters that add scale x B A to linear layers can be stacked: any rank, target modules, scaling and rsLoRA; and so can
embedding rows that replace the base's (peft's trainable_token_indices). DoRA, saved modules, biases and non-linear
layers can't. Ranks are padded with zeros, so that a few batched products per layer compute all cards at once, exactly
(S-LoRA, Sheng et al. 2023, does so for heterogeneous requests; here every card has equally many rows).
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.models.batched.decoder import (
    Decoder,
    Linear,
    LowRank,
    UnsupportedModel,
    Up,
    joined,
    map_linears,
)
from kcard.cards.models.batched.patterns import PatternMatcher
from kcard.manifest import NO_PREFIX_CARDS

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NAME = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<half>[AB])\.weight")
ROWS = re.compile(r"base_model\.model\.(?P<module>.+)\.token_adapter\.trainable_tokens_delta")
TOKENS = "trainable_token_indices"
DOWN = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?:A\.weight|embedding_A)")
MAX_EXCEPTIONS = 500  # modules with a rank or alpha of their own, which peft compares with each other
# Names of the token embeddings by family.
TABLES = ("embed_tokens", "embed_in")
# Bytes of a token id.
NUMBER = 8
# Types of peft that train keys and values before every prompt.
PREFIX_TYPES = ("CARTRIDGE", "PREFIX_TUNING")
# Config keys that change the computation, and the values at which they don't.
NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False, None),
    "modules_to_save": (None, []),
    "bias": ("none", None),
    "lora_bias": (False, None),
    "fan_in_fan_out": (False, None),
    "layer_replication": (None, []),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (False, None),
}


@dataclass(frozen=True)
class LoraAdapter:
    """down (rank, in) and up (out, rank) of each module, by its name in the base; `up` is already scaled.

    table  the token embedding, by its name in the base, if the adapter has rows of it
    rows   token ids, int64 (n,), and the rows, (n, d)
    """

    modules: "Mapping[str, tuple[Tensor, Tensor]]"
    table: str = ""
    rows: "tuple[Tensor, Tensor] | None" = None

    @property
    def ranks(self) -> dict[str, int]:
        """Rank by module; for the token embedding, its number of rows."""
        own = {} if self.rows is None else {self.table: len(self.rows[0])}
        return own | {module: down.shape[0] for module, (down, _) in self.modules.items()}


def check(folder: Path) -> None:
    """Raise UnsupportedModel if the adapter in a folder can't be stacked, ValueError for a prefix."""
    from safetensors import safe_open

    if not (folder / WEIGHTS).is_file():
        raise UnsupportedModel(f"it has no {WEIGHTS}")
    # The config.
    config = _config(folder)
    if config.get("peft_type") in PREFIX_TYPES:
        raise ValueError(NO_PREFIX_CARDS)
    for key, plain in NEUTRAL_VALUES.items():
        if config.get(key, plain[0]) not in plain:
            raise UnsupportedModel(f"its {key} is {config[key]!r}")
    indices = config.get(TOKENS) or {}
    if isinstance(indices, Mapping) and (len(indices) > 1 or not all(map(_is_token_table, indices))):
        raise UnsupportedModel(f"its {TOKENS} name {' and '.join(indices)}")
    # The names of the tensors.
    targets, rows = config.get("target_modules") or (), 0
    matcher = PatternMatcher()
    with safe_open(folder / WEIGHTS, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            table = ROWS.fullmatch(name)
            if table and _is_token_table(table["module"]) and _own_tokens(config):
                rows += 1
                continue
            match = NAME.fullmatch(name)
            if match is None:
                raise UnsupportedModel(f"it changes {name}")
            # Check that peft would apply the adapter to the module: by name, by suffix, or by pattern.
            module = match["module"]
            if isinstance(targets, str):
                is_target = targets == "all-linear" or matcher.matches(targets, module)
            else:
                is_target = any(module == name or module.endswith(f".{name}") for name in targets)
            if not is_target:
                raise UnsupportedModel(
                    f"it has weights for {match['module']}, which is none of its target_modules"
                )
    if rows != bool(_own_tokens(config)):
        raise UnsupportedModel(f"it has rows of {rows} tables for its {TOKENS}")


def _is_token_table(module: str) -> bool:
    """Return whether the module is a token embedding, by its suffix."""
    return module.rpartition(".")[2] in TABLES


def _own_tokens(config: Mapping[str, Any]) -> list[int]:
    """Return the tokens with own rows, of the one module that may have them."""
    indices = config.get(TOKENS) or []
    return list(*indices.values()) if isinstance(indices, Mapping) else indices


def read(folder: Path, dtype: "Any") -> LoraAdapter:
    """Load the adapter's weights from a memory-mapped file in the given dtype."""
    import torch
    from safetensors import safe_open

    config = _config(folder)
    halves: dict[str, dict[str, Tensor]] = {}
    table, rows = "", None
    with safe_open(folder / WEIGHTS, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            own = ROWS.fullmatch(name)
            if own:
                table = own["module"]
                rows = torch.tensor(_own_tokens(config), dtype=torch.int64), file.get_tensor(name).to(dtype)
                continue
            match = NAME.fullmatch(name)
            assert match is not None, "see check"
            halves.setdefault(match["module"], {})[match["half"]] = file.get_tensor(name)
    modules, matcher = {}, PatternMatcher()
    for module, pair in halves.items():
        rank = pair["A"].shape[0]
        alpha = matcher.find(config.get("alpha_pattern") or {}, module, config.get("lora_alpha", 8))
        scale = float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)
        modules[module] = (pair["A"].to(dtype), (pair["B"].float() * scale).to(dtype))
    return LoraAdapter(modules, table, rows)


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return config


def exact_config(folder: Path) -> dict[str, Any]:
    """Return the keys of the config that choose modules by patterns, with the modules that the adapter has instead.

    peft matches patterns itself, without a limit of time, and makes matrices of the rank that the config says. Raises
    ValueError for anything but LoRA, for a rank that is not that of the tensors, and for patterns that are slow or more
    than MAX_EXCEPTIONS.
    """
    from safetensors import safe_open

    config = _config(folder)
    if config.get("peft_type") != "LORA":
        raise ValueError(f"it is a {str(config.get('peft_type'))[:40]} adapter, and kcard loads LoRA")
    # The modules that it has, with their ranks.
    ranks: dict[str, int] = {}
    with safe_open(folder / WEIGHTS, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            match = DOWN.fullmatch(name)
            if match:
                ranks[match["module"]] = file.get_slice(name).get_shape()[0]
    rank, alpha = config.get("r", 8), config.get("lora_alpha", 8)
    own_ranks, own_alphas = {}, {}
    matcher = PatternMatcher()
    for module, actual in ranks.items():
        declared = matcher.find(config.get("rank_pattern") or {}, module, rank)
        if declared != actual:
            raise ValueError(f"{module} has rank {actual}, but its {CONFIG} declares {str(declared)[:40]}")
        if declared != rank:
            own_ranks[re.escape(module)] = declared
        own_alpha = matcher.find(config.get("alpha_pattern") or {}, module, alpha)
        if own_alpha != alpha:
            own_alphas[re.escape(module)] = own_alpha
    if max(len(own_ranks), len(own_alphas)) > MAX_EXCEPTIONS:
        raise ValueError(f"its {CONFIG} has patterns for more than {MAX_EXCEPTIONS} modules")
    exact: dict[str, Any] = {"rank_pattern": own_ranks, "alpha_pattern": own_alphas}
    exact["r"] = rank if rank in ranks.values() else max(ranks.values(), default=1)
    by_pattern = ("exclude_modules", "layers_to_transform", "layers_pattern")
    if isinstance(config.get("target_modules"), str) or any(config.get(key) for key in by_pattern):
        exact |= {"target_modules": {*ranks}, **dict.fromkeys(by_pattern)}
    return exact


def widths(decoder: Decoder) -> dict[str, tuple[int, int]]:
    """Return (inputs, outputs) of the modules whose adapters can be stacked."""
    sizes = {}
    for linear in decoder.linears:
        for part in linear.parts:
            sizes[part.module] = linear.weight.shape[1], part.width
    return sizes


def check_fit(decoder: Decoder, adapter: LoraAdapter) -> None:
    """Raise UnsupportedModel if the adapter can't be stacked on this base."""
    sizes = widths(decoder)
    for module, (down, up) in adapter.modules.items():
        if module not in sizes:
            raise UnsupportedModel(f"its adapter changes {module}")
        if (down.shape[1], up.shape[0]) != sizes[module]:
            raise UnsupportedModel(f"its adapter of {module} does not fit the base")
    if adapter.rows is not None:
        _check_rows(decoder, adapter, *adapter.rows)


def _check_rows(decoder: Decoder, adapter: LoraAdapter, tokens: "Tensor", weight: "Tensor") -> None:
    words, width = decoder.embed.table.shape
    if adapter.table != decoder.embed.module:
        raise UnsupportedModel(f"its adapter changes {adapter.table}")
    if weight.shape != (len(tokens), width):
        raise UnsupportedModel(
            f"its rows of {adapter.table} are {tuple(weight.shape)}, but must be {(len(tokens), width)}"
        )
    if len(tokens.unique()) < len(tokens):
        raise UnsupportedModel("its trainable_token_indices name a token twice")
    if int(tokens.min()) < 0 or int(tokens.max()) >= words:
        raise UnsupportedModel(
            f"its trainable_token_indices name a token that is not among the {words} of the base"
        )
    if decoder.tied and any(part.module in adapter.modules for part in decoder.head.parts):
        raise UnsupportedModel("its adapter changes the head twice")


def added(decoder: Decoder, ranks: Sequence[Mapping[str, int]]) -> int:
    """Return the bytes of stacked adapters. ranks: of each, as in LoraAdapter."""
    total = 0
    for linear in decoder.linears:
        for part in linear.parts:
            rank = max((r.get(part.module, 0) for r in ranks), default=0)
            total += rank * (linear.weight.shape[1] + part.width) * linear.weight.element_size()
    table = decoder.embed.table
    own = max((r.get(decoder.embed.module, 0) for r in ranks), default=0)
    total += own * (table.shape[1] * table.element_size() + NUMBER)
    return total * len(ranks)


def stacked(decoder: Decoder, adapters: Sequence[LoraAdapter]) -> Decoder:
    """Stack the adapters of several cards on the base; rows must be ordered by card."""
    stack = map_linears(decoder, lambda linear: _with_adapters(linear, adapters))
    own = joined([adapter.rows for adapter in adapters], decoder.embed.table)
    head = replace(stack.head, own=own) if decoder.tied else stack.head
    return replace(stack, embed=replace(stack.embed, own=own), head=head)


def _with_adapters(linear: Linear, adapters: Sequence[LoraAdapter]) -> Linear:
    """Add the adapters' low-rank parts to a layer: side by side if it has several parts, each with its own ranks."""
    import torch

    ranks = []
    for part in linear.parts:
        pairs = [adapter.modules[part.module] for adapter in adapters if part.module in adapter.modules]
        ranks.append(max((down.shape[0] for down, _ in pairs), default=0))
    if not sum(ranks):
        return linear
    like: Any = {"dtype": linear.weight.dtype, "device": linear.weight.device}
    down = torch.zeros((len(adapters), sum(ranks), linear.weight.shape[1]), **like)
    ups = []
    row = first = 0
    for part, rank in zip(linear.parts, ranks, strict=True):
        up = torch.zeros((len(adapters), rank, part.width), **like)
        for number, adapter in enumerate(adapters):
            if part.module in adapter.modules:
                a, b = adapter.modules[part.module]
                b = b if part.order is None else b[part.order]
                down[number, row : row + len(a)] = a
                up[number, : len(a)] = b.T
        if rank:
            ups.append(Up(up, first))
        row, first = row + rank, first + part.width
    return replace(linear, low=LowRank(down, tuple(ups)))
