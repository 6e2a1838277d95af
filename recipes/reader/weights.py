"""The reader's weights as they are shipped: what training changed of the encoder, in steps of 8 bits, and the heads."""

from pathlib import Path

from kcard import encoder
from recipes.reader.network import TrainedNetwork

__all__ = ["save"]

STEPS = 127


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
        change = (now - base).detach()
        most = change.abs().amax(-1, keepdim=True) if change.ndim == 2 else change.abs().max().reshape(1)
        scale = (most / STEPS).clamp(min=1e-12)
        found[f"{name}.steps"], found[f"{name}.scale"] = torch.round(change / scale).to(torch.int8), scale
    for name, value in network.heads.items():
        found[f"heads.{name}"] = value.detach().half() if name == "pooled.weight" else value.detach()
    save_file(
        {name: value.contiguous() for name, value in found.items()},
        folder / "reader.safetensors",
        {"format": "pt"},
    )
