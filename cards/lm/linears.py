"""The linear layers of a base, from its config alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kcard.cards.embedded import base_folder
from kcard.cards.lm.loader import base_digest, explained
from kcard.errors import ModelUnavailable
from kcard.manifest import Base
from kcard.quiet import quiet_loading

__all__ = ["linears"]


def linears(name: str) -> tuple[Base, Mapping[str, tuple[int, int]]]:
    """The base as a manifest names it, and inputs and outputs of its linear layers by name, in their order.

    Raises ModelUnavailable where the base can't be had.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    needed = f"the base model {name!r} can't be loaded (give a folder or a reachable hub id with --base)"
    with explained(ModelUnavailable, needed), quiet_loading(), torch.device("meta"):
        config: Any = AutoConfig.from_pretrained(base_folder(name), trust_remote_code=False)
        model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    found = {
        place: (module.in_features, module.out_features)
        for place, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    revision = getattr(config, "_commit_hash", None)
    where = str(Path(name).absolute()) if Path(name).is_dir() else name
    return Base(where, revision, base_digest(where, revision)), found
