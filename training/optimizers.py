"""Muon, and the optimizers of fine-tuning by name."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from kcard.errors import MissingExtra
from kcard.training.execution import bf16

if TYPE_CHECKING:
    from torch import Tensor

# Muon with all matrices of one shape in one product: torch's own takes them one by one, in bf16 on any hardware, which
# takes five to six times as long on a CPU without it (docs/architecture.md).

A, B, C = 3.4445, -4.775, 2.0315


class Muon:
    """Momentum, orthogonalised by Newton-Schulz steps in bf16 (Jordan and others, 2024); the same update as
    torch.optim.Muon with its default adjustment of the rate. For 2-D weights only."""

    def __init__(
        self,
        weights: "Iterable[Tensor]",
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 4,
    ) -> None:
        import torch

        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps}
        self.param_groups: list[dict[str, Any]] = [{"params": list(weights), **settings}]
        self._buffers = [torch.zeros_like(weight) for weight in self.param_groups[0]["params"]]

    def step(self) -> None:
        """Update every weight that has a gradient."""
        import torch

        # Tall matrices lie down, so that the product with their own transpose is small.
        group = self.param_groups[0]
        shapes: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}
        with torch.no_grad():
            for weight, buffer in zip(group["params"], self._buffers, strict=True):
                if weight.grad is not None:
                    shapes.setdefault(tuple(sorted(weight.shape)), []).append((weight, buffer))
            for pairs in shapes.values():
                directions = []
                for weight, buffer in pairs:
                    gradient = torch.as_tensor(weight.grad)
                    buffer.lerp_(gradient, 1 - group["momentum"])
                    direction = gradient.lerp(buffer, group["momentum"])
                    directions.append(direction.T if is_tall(weight) else direction)
                flat = orthogonalize(torch.stack(directions), group["steps"])
                for (weight, _), direction in zip(pairs, flat, strict=True):
                    rate = group["lr"] * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(direction.T if is_tall(weight) else direction, alpha=-rate)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for weight in self.param_groups[0]["params"]:
            weight.grad = None if set_to_none else weight.grad.zero_()

    def state_dict(self) -> dict[str, Any]:
        return {"buffers": self._buffers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for buffer, saved in zip(self._buffers, state["buffers"], strict=True):
            buffer.copy_(saved)


def is_tall(weight: "Tensor") -> bool:
    return weight.shape[0] > weight.shape[1]


def orthogonalize(matrices: "Tensor", steps: int) -> "Tensor":
    """Move the singular values of matrices (n, rows, columns), rows <= columns, towards 1 by Newton-Schulz steps."""
    import torch

    x = matrices.bfloat16() if bf16(matrices.device.type) else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.float()


OptimizerName = Literal["adamw", "adamw8bit", "paged-adamw8bit"]
SMALL = 4096  # weights with fewer values keep float32 states
BLOCK = 256  # values that share a scale


def check_optimizer(name: OptimizerName) -> None:
    """Raise MissingExtra if the optimizer's package is not installed."""
    from importlib.util import find_spec

    if name != "adamw" and find_spec("bitsandbytes") is None:
        raise MissingExtra(f"optimizer {name} needs bitsandbytes: pip install 'kcard[8bit]'")


def state_bytes(name: OptimizerName, values: int, width: int) -> int:
    """Return the bytes of optimizer state for a weight of `values` values; `width`: bytes per value."""
    if name == "adamw":
        return 2 * values * width
    if values < SMALL:
        return 2 * values * 4
    return 2 * (values + 4 * -(-values // BLOCK))
