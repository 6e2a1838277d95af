"""Hidden states of a transformer as vectors of texts: one layer, pooled over tokens."""

import hashlib
from typing import TYPE_CHECKING, Any, Literal, get_args

from kcard.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Pooling = Literal["auto", "last", "mean", "cls", "pooler"]
CAUSAL: tuple[Pooling, ...] = ("auto", "last", "mean")  # of causal models
ENCODERS: tuple[Pooling, ...] = get_args(Pooling)


def layer_and_pooling(
    layer: str, pooling: str, layers: int, poolings: tuple[Pooling, ...] = CAUSAL
) -> tuple[int, Pooling]:
    """Parse and check the layer and the pooling that a user chose for a model with `layers` layers.

    layer     0 is the embedding, 1 the first layer, -1 the last; raises UsageError for any other
    pooling   one of `poolings`: the state of the last token, the mean over tokens, the state of the first token
              (cls), the model's own pooler; auto depends on the kind of model
    """
    if not layer.removeprefix("-").isdecimal() or not -layers - 1 <= int(layer) <= layers:
        raise UsageError(f"layer {layer!r}: the model has layers 0 to {layers}, or -1 for its last")
    for choice in poolings:
        if pooling == choice:
            return int(layer), choice
    raise UsageError(f"pooling {pooling!r}: choose one of {', '.join(poolings)}")


def pooled(states: "Tensor", mask: "Tensor", mean: bool) -> "Tensor":
    """Pool right-padded states (n, tokens, d) with the mask (n, tokens) to (n, d) in single precision: the mean over
    tokens, or the last token's state.
    """
    import torch

    states = states.float()
    if mean:
        counted = mask.unsqueeze(-1).to(states.dtype)
        return (states * counted).sum(1) / counted.sum(1)
    return states[torch.arange(len(states)), mask.sum(1) - 1]


def first(states: "Tensor") -> "Tensor":
    """Return the state of the first token, shape (n, tokens, d) to (n, d) in single precision."""
    return states[:, 0].float()


def depth(model: Any) -> int:
    """Return the number of layers of a model; of an encoder-decoder, those of the decoder."""
    config = model.config.get_text_config(decoder=True)
    return int(getattr(config, "num_decoder_layers", None) or config.num_hidden_layers)


def weights_digest(model: Any, *more: object) -> str:
    """Return the sha256, hexadecimal, of the weights in memory, independent of their files, and of `more`."""
    import torch

    state = hashlib.sha256(repr(more).encode())
    for name, tensor in sorted(model.state_dict().items()):
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        state.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
