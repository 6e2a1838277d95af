"""Quantise weights to 8 bits or fewer, as kcard ships them."""

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

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


def round_products(model: Any) -> None:
    """Let the layers of a BERT multiply in training as the graphs do (Graph.linear8): weights in steps of 7 bits with a
    scale for each output, states in steps of 8 bits with one for each text. Gradients pass the rounding as if it were
    not there (Jacob et al., 2018, "Quantization and Training of Neural Networks", section 3)."""
    import torch
    from torch.nn.functional import linear

    def rounded(states: "Tensor") -> "Tensor":
        values = states.detach()
        low, high = (
            values.amin((1, 2), keepdim=True).clamp(max=0),
            values.amax((1, 2), keepdim=True).clamp(min=0),
        )
        step = ((high - low) / 255).clamp(min=1e-12)
        return states + ((values / step).round_().mul_(step) - values)

    def forward(layer: Any, states: "Tensor") -> "Tensor":
        weight = layer.weight.detach()
        step = (weight.abs().amax(1, keepdim=True) / PRODUCTS).clamp(min=1e-12)
        steps = layer.weight + ((weight / step).round_().mul_(step) - weight)
        return linear(rounded(states), steps, layer.bias)

    for layer in model.encoder.modules():
        if isinstance(layer, torch.nn.Linear):
            vars(layer)["forward"] = functools.partial(forward, layer)
