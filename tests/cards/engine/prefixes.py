"""Prefixes on the models of tests.cards.engine.models, and cards of them."""

from pathlib import Path
from typing import Any

import torch

from kcard.cards.card import Card
from kcard.cards.models.loader import base_digest
from kcard.manifest import Base, Manifest
from kcard.training.base_model import add_prefix
from tests.cards.engine.cards import sealed
from tests.cards.engine.models import model

__all__ = ["prefix", "prefix_card"]


def prefix(base: Any, folder: Path, ids: list[int], noise: float = 0, seed: int = 0) -> Path:
    """The keys and values of a text, with noise on them, as peft saves them."""
    import copy

    wrapped = add_prefix(copy.deepcopy(base), len(ids), ids)
    torch.manual_seed(seed)
    for weight in wrapped.prompt_encoder.parameters():
        weight.data.add_(noise * torch.randn_like(weight))
    wrapped.save_pretrained(str(folder))
    return folder


def prefix_card(folder: Path, family: str, name: str, seed: int, tokens: int = 7) -> Card:
    """On the family's base in folder/base, as the LoRA cards of tests.cards.engine.cards."""
    base = folder / f"{family}-base"
    if not base.exists():
        model(family).save_pretrained(base)
    ids = [1, *((seed * 31 + place * 17) % 200 + 5 for place in range(tokens - 1))]
    where = prefix(model(family), folder / name, ids, noise=0.3, seed=seed)
    made_from = Base(str(base), sha256=base_digest(str(base)))
    return sealed(where, Manifest(name=name, description=name, method="prefix", base=made_from))
