"""Weights in steps of 8 bits, as kcard ships them: a row's largest value is 127 steps."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["quantised"]

STEPS = 127


def quantised(name: str, weight: "Tensor") -> "dict[str, Tensor]":
    """Return `name.steps`, int8, and `name.scale`, the step of each row, or of all where the weight is a vector."""
    import torch

    weight = weight.detach()
    most = weight.abs().amax(-1, keepdim=True) if weight.ndim == 2 else weight.abs().max().reshape(1)
    scale = (most / STEPS).clamp(min=1e-12).float()
    return {f"{name}.steps": torch.round(weight / scale).to(torch.int8), f"{name}.scale": scale}
