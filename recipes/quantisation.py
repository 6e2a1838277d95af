"""Weights in steps of 8 bits or fewer, as kcard ships them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["layers_of", "quantised", "restored"]

WHOLE, PRODUCTS = 127, 63  # steps to the largest value of a row; of matrices that are multiplied as they are


def quantised(name: str, rows: "Tensor", most: int = WHOLE) -> "dict[str, Tensor]":
    """Return `name.steps`, int8, and `name.scale`, the step of each row, (n, 1)."""
    import torch

    rows = rows.detach()
    scale = (rows.abs().amax(-1, keepdim=True) / most).clamp(min=1e-12).float()
    return {f"{name}.steps": torch.round(rows / scale).to(torch.int8), f"{name}.scale": scale}


def layers_of(model: Any) -> "dict[str, Tensor]":
    """The layers of a BERT as the graphs multiply them: matrices as (inputs, outputs) in steps of 7 bits, with the step
    of each output (see Graph.linear8 in recipes/graphs), and vectors as they are."""
    layers: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        if name.startswith("encoder."):
            matrix = quantised(name, weight, PRODUCTS) if weight.ndim == 2 else {}
            layers |= {key: value.T.contiguous() for key, value in matrix.items()} or {name: weight}
            if matrix:
                layers[f"{name}.scale"] = layers[f"{name}.scale"].reshape(-1)
    return layers


def restored(layers: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """The weights that `layers_of` made these of, as far as they are still there."""
    weights = {}
    for name, value in layers.items():
        if name.endswith(".steps"):
            matrix = name.removesuffix(".steps")
            weights[matrix] = value.T.float() * layers[f"{matrix}.scale"][:, None]
        elif name.startswith("encoder.") and not name.endswith(".scale"):
            weights[name] = value
    return weights
