"""Hidden states of a transformer as vectors of texts: one layer, pooled over tokens. It knows no model by name."""

import hashlib
from typing import TYPE_CHECKING, Any, Literal, get_args

from kcard.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CAUSAL", "ENCODERS", "Pooling", "depth", "first", "layer_and_pooling", "pooled", "weights_digest"]

Pooling = Literal["auto", "last", "mean", "cls", "pooler"]
CAUSAL: tuple[Pooling, ...] = ("auto", "last", "mean")  # of what writes from left to right
ENCODERS: tuple[Pooling, ...] = get_args(Pooling)


def layer_and_pooling(
    layer: str, pooling: str, layers: int, poolings: tuple[Pooling, ...] = CAUSAL
) -> tuple[int, Pooling]:
    """Both as people write them, checked against a model of so many layers.

    layer     0 is what the embedding gives, 1 the first layer, -1 the last; UsageError where there is none such
    pooling   one of `poolings`: the state of the last token, the mean over tokens, the state of the first token
              (cls), what the model's own pooler makes of that; auto leaves it to the model's kind
    """
    if not layer.removeprefix("-").isdecimal() or not -layers - 1 <= int(layer) <= layers:
        raise UsageError(f"layer {layer!r}: the model has layers 0 to {layers}, or -1 for its last")
    for known in poolings:
        if pooling == known:
            return int(layer), known
    raise UsageError(f"pooling {pooling!r}: choose one of {', '.join(poolings)}")


def pooled(states: "Tensor", mask: "Tensor", mean: bool) -> "Tensor":
    """States (n, tokens, d), padded on the right as the mask (n, tokens) tells, to (n, d) in single precision.

    The mean over the tokens, or the state of the last.
    """
    import torch

    states = states.float()
    if mean:
        counted = mask.unsqueeze(-1).to(states.dtype)
        return (states * counted).sum(1) / counted.sum(1)
    return states[torch.arange(len(states)), mask.sum(1) - 1]


def first(states: "Tensor") -> "Tensor":
    """The state of the first token, shape (n, tokens, d) to (n, d) in single precision."""
    return states[:, 0].float()


def depth(model: Any) -> int:
    """Its layers; of an encoder-decoder, the decoder's."""
    config = model.config.get_text_config(decoder=True)
    return int(getattr(config, "num_decoder_layers", None) or config.num_hidden_layers)


def weights_digest(model: Any, *more: object) -> str:
    """sha256, hexadecimal, of the weights as they are in memory, however their files are cut; and of `more`."""
    import torch

    state = hashlib.sha256(repr(more).encode())
    for name, tensor in sorted(model.state_dict().items()):
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        state.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
