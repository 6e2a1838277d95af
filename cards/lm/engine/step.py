"""One block of a decoder, and one step of all of them, the next token of every row; on a GPU as one CUDA graph."""

from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine.cache import Cache
from kcard.cards.lm.engine.decoder import Decoder, Layer, Norm

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Recorded", "block", "heads", "take_step"]


def take_step(decoder: Decoder, cache: Cache, new: "Tensor", positions: "Tensor") -> "Tensor":
    """Logits (rows, vocabulary) after one more token of each document."""
    x = decoder.embed(new)
    if decoder.positions is not None:
        x = x + decoder.positions(positions)
    tables = decoder.rotary.tables(positions, x.dtype) if decoder.rotary is not None else None
    for number, layer in enumerate(decoder.layers):
        q, k, v = heads(decoder, layer, layer.attention_norm(x), tables)
        x = block(layer, x, cache.attend(number, q, k, v))
    return decoder.head(decoder.final_norm(x))


def heads(
    decoder: Decoder, layer: Layer, x: "Tensor", tables: "tuple[Tensor, Tensor] | None"
) -> "tuple[Tensor, Tensor, Tensor]":
    """Queries, keys and values, (rows, heads, width) each, normalised and turned as the model does."""
    shape = decoder.shape
    q, k, v = (part.reshape(x.shape[0], -1, shape.width) for part in layer.qkv(x).split(shape.sizes, dim=-1))
    if layer.query_norm is not None and layer.key_norm is not None:
        q, k = _each_head(layer.query_norm, q), _each_head(layer.key_norm, k)
    if decoder.rotary is not None and tables is not None:
        q, k = decoder.rotary.turn(q, tables), decoder.rotary.turn(k, tables)
    return q, k, v


def _each_head(norm: Norm, x: "Tensor") -> "Tensor":
    return norm(x.reshape(-1, x.shape[-1])).view_as(x)


def block(layer: Layer, x: "Tensor", mixed: "Tensor") -> "Tensor":
    if layer.parallel:
        return x + layer.out(mixed) + layer.mlp(layer.mlp_norm(x))
    x = x + layer.out(mixed)
    return x + layer.mlp(layer.mlp_norm(x))


class Recorded:
    """take_step of one batch on a GPU as one CUDA graph: recorded once and then replayed, kernels and all.

    A step of a small model is hundreds of short kernels, and launching each takes longer than running it. The cache
    must be static. The first step runs as it is, the second is recorded.
    """

    def __init__(self, decoder: Decoder, cache: Cache) -> None:
        self._decoder, self._cache = decoder, cache
        self._warm = False
        self._recorded: tuple[Any, Tensor, Tensor, Tensor] | None = None

    def __call__(self, new: "Tensor", positions: "Tensor") -> "Tensor":
        """Logits (rows, vocabulary), in a buffer that the next step overwrites."""
        import torch

        if not self._warm:
            self._warm = True
            return self._apart(new, positions)
        if self._recorded is None:
            kept = new.clone(), positions.clone()
            graph = torch.cuda.CUDAGraph()
            # Meanwhile another thread may read the next card's weights.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                logits = take_step(self._decoder, self._cache, *kept)
            self._recorded = (graph, *kept, logits)
        recorded, tokens, places, logits = self._recorded
        tokens.copy_(new)
        places.copy_(positions)
        recorded.replay()
        return logits

    def _apart(self, new: "Tensor", positions: "Tensor") -> "Tensor":
        """On a stream of its own, as recording wants what it warms up to have run."""
        import torch

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            logits = take_step(self._decoder, self._cache, new, positions)
        torch.cuda.current_stream().wait_stream(side)
        return logits
