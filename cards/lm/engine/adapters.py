"""LoRA adapters as files: checked whether they can be stacked, and read without a model.

What adds scale x B A to linear layers can be: any rank, target modules, scaling and rsLoRA; and so can rows of the
table of tokens in place of the base's (peft's trainable_token_indices). DoRA, saved modules, biases and layers that are
not linear can't.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine.decoder import Unsupported

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Adapter", "check", "read"]

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NAME = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<half>[AB])\.weight")
ROWS = re.compile(r"base_model\.model\.(?P<module>.+)\.token_adapter\.trainable_tokens_delta")
TOKENS = "trainable_token_indices"
# What families call their table of tokens.
TABLES = ("embed_tokens", "embed_in")
# What a config may hold that changes the computation, and the value at which it does not.
PLAIN: Mapping[str, tuple[Any, ...]] = {
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
class Adapter:
    """down (rank, in) and up (out, rank) of each module, by its name in the base; `up` is scaled already.

    table  the module that embeds tokens, where the adapter has rows of it: by its name in the base
    rows   which, int64 (n,), and what they are, (n, d)
    """

    modules: "Mapping[str, tuple[Tensor, Tensor]]"
    table: str = ""
    rows: "tuple[Tensor, Tensor] | None" = None

    @property
    def ranks(self) -> dict[str, int]:
        """By module; of the one that embeds tokens, how many rows."""
        own = {} if self.rows is None else {self.table: len(self.rows[0])}
        return own | {module: down.shape[0] for module, (down, _) in self.modules.items()}


def check(folder: Path) -> None:
    """Raise Unsupported where the adapter in a folder can't be stacked."""
    from safetensors import safe_open

    if not (folder / WEIGHTS).is_file():
        raise Unsupported(f"it has no {WEIGHTS}")
    config = _config(folder)
    for key, plain in PLAIN.items():
        if config.get(key, plain[0]) not in plain:
            raise Unsupported(f"its {key} is {config[key]!r}")
    indices = config.get(TOKENS) or {}
    if isinstance(indices, Mapping) and (len(indices) > 1 or not all(map(_embeds, indices))):
        raise Unsupported(f"its {TOKENS} name {' and '.join(indices)}")
    targets, rows = config.get("target_modules") or (), 0
    with safe_open(folder / WEIGHTS, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            if (table := ROWS.fullmatch(name)) and _embeds(table["module"]) and _tokens(config):
                rows += 1
                continue
            if (found := NAME.fullmatch(name)) is None:
                raise Unsupported(f"it changes {name}")
            if not _targeted(targets, found["module"]):
                raise Unsupported(
                    f"it has weights for {found['module']}, which is none of its target_modules"
                )
    if rows != bool(_tokens(config)):
        raise Unsupported(f"it has rows of {rows} tables for its {TOKENS}")


def _embeds(module: str) -> bool:
    """Whether the module is a table of tokens, by the end of its name."""
    return module.rpartition(".")[2] in TABLES


def _tokens(config: Mapping[str, Any]) -> list[int]:
    """The tokens whose rows are the adapter's own, of the one module that may have such."""
    indices = config.get(TOKENS) or []
    return list(*indices.values()) if isinstance(indices, Mapping) else indices


def _targeted(targets: str | Sequence[str], module: str) -> bool:
    """Whether peft would apply the adapter to the module: by name, by the end of its name, or by a pattern."""
    if isinstance(targets, str):
        return targets == "all-linear" or re.fullmatch(targets, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in targets)


def read(folder: Path, dtype: "Any") -> Adapter:
    """The adapter's weights, from a file that is mapped into memory, in the given dtype."""
    import torch
    from safetensors import safe_open

    config = _config(folder)
    halves: dict[str, dict[str, Tensor]] = {}
    table, rows = "", None
    with safe_open(folder / WEIGHTS, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            if own := ROWS.fullmatch(name):
                table = own["module"]
                rows = torch.tensor(_tokens(config), dtype=torch.int64), file.get_tensor(name).to(dtype)
                continue
            found = NAME.fullmatch(name)
            assert found is not None, "see check"
            halves.setdefault(found["module"], {})[found["half"]] = file.get_tensor(name)
    modules = {}
    for module, pair in halves.items():
        scale = _scale(config, module, pair["A"].shape[0])
        modules[module] = (pair["A"].to(dtype), (pair["B"].float() * scale).to(dtype))
    return Adapter(modules, table, rows)


def _config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return found


def _scale(config: Mapping[str, Any], module: str, rank: int) -> float:
    alpha = _patterned(config.get("alpha_pattern") or {}, module, config.get("lora_alpha", 8))
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _patterned(patterns: Mapping[str, Any], module: str, otherwise: Any) -> Any:
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return otherwise
