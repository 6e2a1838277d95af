"""LoRA adapters in files: pairs of matrices and the linear layers that they belong to.

Two layouts are read: a folder of peft (adapter_config.json, adapter_model.safetensors), and a file with one tensor per
module for all layers, as Doc-to-LoRA's hypernetwork makes them (Charakorn et al., 2026; combine_lora and lora_forward
of its code): NAME.A (layers, rank, in) and NAME.B (layers, rank, out), with or without a leading dimension of 1.
Adapters joined along the rank have a multiple of the rank in their config, and the scale in their config. Only
safetensors files are ever opened.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.cards.models.batched import lora
from kcard.cards.models.batched.patterns import PatternMatcher
from kcard.cards.models.loader import base_digest, explained
from kcard.embedded.opt import base_folder
from kcard.errors import CardError, ModelUnavailable
from kcard.manifest import NO_PREFIX_CARDS, Base
from kcard.system import quiet_loading

if TYPE_CHECKING:
    from torch import Tensor

# The linear layers of a base, from its config alone.


def linears(name: str) -> tuple[Base, Mapping[str, tuple[int, int]]]:
    """Return the base as manifests name it, and (inputs, outputs) of its linear layers by name, in order.

    Raises ModelUnavailable if the base is unavailable.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    needed = f"the base model {name!r} can't be loaded (give a folder or a reachable hub id with --base)"
    with explained(ModelUnavailable, needed), quiet_loading(), torch.device("meta"):
        config: Any = AutoConfig.from_pretrained(base_folder(name), trust_remote_code=False)
        model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    sizes = {}
    for place, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            sizes[place] = module.in_features, module.out_features
    revision = getattr(config, "_commit_hash", None)
    where = str(Path(name).absolute()) if Path(name).is_dir() else name
    return Base(where, revision, base_digest(where, revision)), sizes


PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
NAME = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<half>[AB])(?:\.default)?\.weight")
STACKED_NAME = re.compile(r"(?P<module>[A-Za-z_][\w.]*)\.(?P<half>[AB])")
REMEDY = (
    "a pickle, which can run code when it is opened, so kcard never opens one: ask its author to load the "
    "tensors with torch.load(..., weights_only=True) and save them with safetensors.torch.save_file"
)


@dataclass(frozen=True)
class LoraPairs:
    """down (rank, in) and up (out, rank) of each module, by its name in the base, and the scale of their product.
    `base`: the model that they name as theirs."""

    modules: "Mapping[str, tuple[Tensor, Tensor]]"
    scales: Mapping[str, float]
    base: str = ""

    @property
    def rank(self) -> int:
        """Largest rank."""
        return max(down.shape[0] for down, _ in self.modules.values())


def refuse_pickle(path: Path) -> None:
    """Raise CardError for a file that is a pickle by its name, or a folder whose weights are."""
    if path.is_file() and path.suffix.lower() in PICKLES:
        raise CardError(f"{path} is {REMEDY}")
    if path.is_dir() and not (path / lora.WEIGHTS).is_file():
        pickled = sorted(file.name for file in path.iterdir() if file.suffix.lower() in PICKLES)
        if pickled:
            raise CardError(f"{path} has no {lora.WEIGHTS}, and {pickled[0]} is {REMEDY}")
        raise CardError(f"{path} has no {lora.WEIGHTS}: give the folder of an adapter that peft saved")


def read_peft(folder: Path) -> LoraPairs:
    """Load an adapter. Raises CardError for anything but LoRA pairs on linear layers, and for ranks that are not a
    multiple of the config's."""
    # The config, which must change nothing but by LoRA pairs.
    try:
        config = json.loads((folder / lora.CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CardError(f"{folder / lora.CONFIG} can't be read: {error}") from error
    if not isinstance(config, dict):
        raise CardError(f"{folder / lora.CONFIG} is not the config of an adapter")
    if config.get("peft_type") in lora.PREFIX_TYPES:
        raise CardError(f"{folder}: {NO_PREFIX_CARDS}")
    for key, plain in lora.NEUTRAL_VALUES.items():
        if config.get(key, plain[0]) not in plain:
            raise CardError(
                f"{folder}: its {key} is {config[key]!r}, and kcard adds only LoRA pairs of linear layers"
            )
    if config.get(lora.TOKENS):
        raise CardError(f"{folder}: it has {lora.TOKENS}, and kcard adds only LoRA pairs of linear layers")
    initialization = config.get("init_lora_weights", True)
    if isinstance(initialization, str) and initialization.lower().startswith(
        ("pissa", "olora", "corda", "loftq")
    ):
        raise CardError(
            f"{folder}: it was initialised by {initialization}, which changes the base: have peft convert it to LoRA "
            "(path_initial_model_for_weight_conversion)"
        )
    # The pairs, each with its scale.
    pairs = _pairs(folder / lora.WEIGHTS, NAME)
    scales, matcher = {}, PatternMatcher()
    for module, (down, _) in pairs.items():
        rank = down.shape[0]
        try:
            declared = int(matcher.find(config.get("rank_pattern") or {}, module, config.get("r") or rank))
            alpha = float(
                matcher.find(config.get("alpha_pattern") or {}, module, config.get("lora_alpha", 8))
            )
        except (TypeError, ValueError) as error:
            raise CardError(f"{folder}: {error}") from error
        if declared < 1 or rank % declared:
            raise CardError(
                f"{folder}: {module} has rank {rank}, but {lora.CONFIG} declares {declared}: correct r or rank_pattern"
            )
        scales[module] = alpha / math.sqrt(declared) if config.get("use_rslora") else alpha / declared
    return LoraPairs(pairs, scales, str(config.get("base_model_name_or_path") or ""))


def read_stacked(path: Path, linears: Iterable[str], scale: float) -> LoraPairs:
    """Load an adapter with one tensor for all layers. `linears`: the linear layers of its base, in order.

    Raises CardError if the file has other tensors, or the base has another number of layers with that name.
    """
    modules: dict[str, tuple[Tensor, Tensor]] = {}
    base_modules = [*linears]
    for name, halves in _pairs(path, STACKED_NAME).items():
        # A leading dimension of 1 is dropped.
        down, up = halves
        if down.dim() == 4 and len(down) == 1:
            down = down[0]
        if up.dim() == 4 and len(up) == 1:
            up = up[0]
        if down.dim() != 3 or up.dim() != 3 or down.shape[:2] != up.shape[:2]:
            shapes = f"{tuple(down.shape)} and {tuple(up.shape)}"
            raise CardError(
                f"{path}: {name}.A and {name}.B must be (layers, rank, in) and (layers, rank, out), but are {shapes}: "
                "join several chunks or documents along the rank first, as Doc-to-LoRA's combine_lora does"
            )
        places = [module for module in base_modules if module == name or module.endswith(f".{name}")]
        if len(places) != len(down):
            raise CardError(
                f"{path}: {name} has {len(down)} layers, and the base has {len(places)} of that name"
            )
        for i, place in enumerate(places):
            modules[place] = down[i], up[i].T
    return LoraPairs(modules, dict.fromkeys(modules, scale))


def check_fit(pairs: LoraPairs, linears: Mapping[str, tuple[int, int]], base: str) -> None:
    """Raise CardError unless every pair belongs to a linear layer of the base, by name and shape, and all of its
    numbers are finite. linears: inputs and outputs of each, by name."""
    import torch

    for module, (down, up) in pairs.modules.items():
        if module not in linears:
            raise CardError(
                f"the adapter changes {module}, which is not a linear layer of {base!r}: name the base that it was "
                "made for with --base"
            )
        if down.dim() != 2 or up.dim() != 2 or down.shape[0] != up.shape[1] or not len(down):
            raise CardError(
                f"the adapter's halves of {module}, {_shapes(down, up)}, are not a pair of one rank"
            )
        inputs, outputs = linears[module]
        if (down.shape[1], up.shape[0]) != (inputs, outputs):
            raise CardError(
                f"the adapter's halves of {module}, {_shapes(down, up)}, do not fit {base!r}, which has "
                f"{inputs} inputs and {outputs} outputs there: name the base that it was made for with --base"
            )
        if not all(half.is_floating_point() and bool(torch.isfinite(half).all()) for half in (down, up)):
            raise CardError(f"the adapter's halves of {module} contain non-finite numbers: make it again")


def write_peft(pairs: LoraPairs, folder: Path, linears: Iterable[str], base: str) -> None:
    """Write the adapter as peft saves it, with any ranks and scales."""
    from peft import LoraConfig
    from safetensors.torch import save_file

    # The largest rank and alpha are those of the config; other modules have their own.
    ranks = {module: down.shape[0] for module, (down, _) in pairs.modules.items()}
    alphas = {module: pairs.scales[module] * rank for module, rank in ranks.items()}
    rank, alpha = max(ranks.values()), max(alphas.values())
    own_ranks, own_alphas = {}, {}
    for module in ranks:
        if ranks[module] != rank:
            own_ranks[re.escape(module)] = ranks[module]
        if alphas[module] != alpha:
            own_alphas[re.escape(module)] = alphas[module]
    # Name target modules by their suffixes if these match no other layers of the base, else by full names.
    ends = {module.rpartition(".")[2] for module in ranks}
    by_suffix = {name for name in linears if name.rpartition(".")[2] in ends}
    targets = ends if by_suffix == {*ranks} else {*ranks}
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # peft takes any number
        target_modules=sorted(targets),
        rank_pattern=own_ranks,
        alpha_pattern=own_alphas,
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
        inference_mode=True,
    )
    config.save_pretrained(str(folder))
    tensors = {}
    for module, (down, up) in pairs.modules.items():
        tensors[f"base_model.model.{module}.lora_A.weight"] = down.contiguous()
        tensors[f"base_model.model.{module}.lora_B.weight"] = up.contiguous()
    save_file(tensors, folder / lora.WEIGHTS, {"format": "pt"})


def _pairs(path: Path, pattern: re.Pattern[str]) -> "dict[str, tuple[Tensor, Tensor]]":
    """Load each module's two halves."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CardError(f"{path} is not a safetensors file, or is damaged: {error}") from error
    halves: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = pattern.fullmatch(name)
        if match is None:
            example = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
            if pattern is STACKED_NAME:
                example = "q_proj.A"
            raise CardError(f"{path}: {name} is not half of a LoRA pair, such as {example}")
        halves.setdefault(match["module"], {})[match["half"]] = tensor
    if not halves:
        raise CardError(f"{path} contains no tensors")
    pairs = {}
    for module, both in halves.items():
        if len(both) < 2:
            raise CardError(f"{path}: {module} has only one half of a LoRA pair")
        pairs[module] = both["A"], both["B"]
    return pairs


def _shapes(down: "Tensor", up: "Tensor") -> str:
    return f"{tuple(down.shape)} and {tuple(up.shape)}"
