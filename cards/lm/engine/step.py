"""One block of a decoder, and one step of all of them: the next token of every row."""

from typing import TYPE_CHECKING

from kcard.cards.lm.engine.cache import Cache
from kcard.cards.lm.engine.decoder import Decoder, Layer, Norm

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["block", "heads", "take_step"]


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
