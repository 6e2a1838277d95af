"""The reader's weights as they are shipped: what training changed of the encoder, in steps of 8 bits, and the heads."""

from pathlib import Path

from kcard import encoder
from recipes.quantisation import quantised
from recipes.reader.network import TrainedNetwork

__all__ = ["save"]


def save(network: TrainedNetwork, folder: Path) -> None:
    """Write reader.safetensors: for each changed matrix `.steps` (int8) and `.scale` (a row's step), each head."""
    import torch
    from safetensors.torch import save_file

    found: dict[str, torch.Tensor] = {}
    trained = network.model.state_dict()
    for name, base in encoder.model().state_dict().items():
        now = trained[name]
        if torch.equal(now, base):
            continue
        found |= quantised(name, now - base)
    for name, value in network.heads.items():
        found[f"heads.{name}"] = value.detach().half() if name == "pooled.weight" else value.detach()
    save_file(
        {name: value.contiguous() for name, value in found.items()},
        folder / "reader.safetensors",
        {"format": "pt"},
    )
