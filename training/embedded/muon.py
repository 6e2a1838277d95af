"""Muon for matrices and AdamW for the other weights, as one optimizer with one schedule."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from kcard.training.execution import bf16

# Coefficients of the Newton-Schulz step (Jordan and others, 2024).
A, B, C = 3.4445, -4.775, 2.0315


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by Newton-Schulz steps in bf16 (Jordan and others, 2024); the same update as
    torch.optim.Muon with its default adjustment of the rate. For 2-D weights only.

    All matrices of one shape are in one product. torch's own takes them one by one, in bf16 on any hardware: five
    to six times as long on a CPU without bf16 (docs/architecture.md).
    """

    def __init__(
        self,
        weights: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 4,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps}
        super().__init__(list(weights), defaults)

    @torch.no_grad()
    def step(self, _: Any = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes.setdefault(tuple(sorted(weight.shape)), []).append(weight)
            for weights in shapes.values():
                directions = []
                for weight in weights:
                    state, gradient = self.state[weight], torch.as_tensor(weight.grad)
                    if not state:
                        state["momentum"] = torch.zeros_like(weight)
                    state["momentum"].lerp_(gradient, 1 - group["momentum"])
                    direction = gradient.lerp(state["momentum"], group["momentum"])
                    # Tall matrices lie down, so that the product with their own transpose is small.
                    directions.append(direction.T if is_tall(weight) else direction)
                flat = orthogonalize(torch.stack(directions), group["steps"])
                for weight, direction in zip(weights, flat, strict=True):
                    rate = group["lr"] * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(direction.T if is_tall(weight) else direction, alpha=-rate)


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for the matrices inside the layers, AdamW for the rest.

    muon_rate, adam_rate  peak learning rates; `decay`: weight decay of both
    """

    def __init__(
        self,
        matrices: Iterable[Tensor],
        rest: Iterable[Tensor],
        muon_rate: float,
        adam_rate: float,
        decay: float,
    ) -> None:
        muon = Muon(matrices, lr=muon_rate, momentum=0.95, weight_decay=decay, steps=4)
        adamw = torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.98), weight_decay=decay, fused=True)
        self.parts = (muon, adamw)
        super().__init__([*muon.param_groups, *adamw.param_groups], {})
        self._share_groups()

    def step(self, _: Any = None) -> None:  # type: ignore[override]
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share_groups()

    def _share_groups(self) -> None:
        """Make the groups those of the parts, so that a schedule sets the parts' rates."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def is_tall(weight: Tensor) -> bool:
    return weight.shape[0] > weight.shape[1]


def orthogonalize(matrices: Tensor, steps: int) -> Tensor:
    """Move the singular values of matrices (n, rows, columns), rows <= columns, towards 1 by Newton-Schulz steps."""
    x = matrices.bfloat16() if bf16(matrices.device.type) else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.float()
