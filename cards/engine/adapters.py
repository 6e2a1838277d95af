"""LoRA adapters as files: read without a model, and judged whether they can be stacked.

What adds scale x B A to linear layers can be: any rank, target modules, scaling and rsLoRA. DoRA, saved modules,
biases and layers that are not linear can't; the reason is said.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Adapter", "obstacle", "read"]

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NAME = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<half>[AB])\.weight")
# What a config may hold that changes the computation, and the value at which it does not.
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False, None),
    "modules_to_save": (None, []),
    "bias": ("none", None),
    "lora_bias": (False, None),
    "fan_in_fan_out": (False, None),
    "layer_replication": (None, []),
    "trainable_token_indices": (None, {}, []),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (False, None),
}


@dataclass(frozen=True)
class Adapter:
    """down (rank, in) and up (out, rank) of each module, by its name in the base; `up` is scaled already."""

    modules: "Mapping[str, tuple[Tensor, Tensor]]"

    @property
    def ranks(self) -> dict[str, int]:
        """By module."""
        return {module: down.shape[0] for module, (down, _) in self.modules.items()}


def obstacle(folder: Path) -> str | None:
    """Why the adapter in a folder can't be stacked; None where it can."""
    from safetensors import safe_open

    if not (folder / WEIGHTS).is_file():
        return f"it has no {WEIGHTS}"
    config = _config(folder)
    for key, plain in PLAIN.items():
        if config.get(key, plain[0]) not in plain:
            return f"its {key} is {config[key]!r}"
    targets = config.get("target_modules") or ()
    with safe_open(folder / WEIGHTS, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            if (found := NAME.fullmatch(name)) is None:
                return f"it changes {name}"
            if not _targeted(targets, found["module"]):
                return f"it has weights for {found['module']}, which is none of its target_modules"
    return None


def _targeted(targets: str | Sequence[str], module: str) -> bool:
    """Whether peft would apply the adapter to the module: by name, by the end of its name, or by a pattern."""
    if isinstance(targets, str):
        return targets == "all-linear" or re.fullmatch(targets, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in targets)


def read(folder: Path, dtype: "Any") -> Adapter:
    """The adapter's weights, from a file that is mapped into memory, in the given dtype."""
    from safetensors import safe_open

    config = _config(folder)
    halves: dict[str, dict[str, Tensor]] = {}
    with safe_open(folder / WEIGHTS, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            found = NAME.fullmatch(name)
            assert found is not None, "asked before: obstacle"
            halves.setdefault(found["module"], {})[found["half"]] = file.get_tensor(name)
    modules = {}
    for module, pair in halves.items():
        scale = _scale(config, module, pair["A"].shape[0])
        modules[module] = (pair["A"].to(dtype), (pair["B"].float() * scale).to(dtype))
    return Adapter(modules)


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
