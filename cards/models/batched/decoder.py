"""A decoder that runs many cards at once.

Rows are ordered by card: with C cards, the rows of a batch are C groups of equal size. A part of the model is shared by
all cards, or has a leading dimension, (C, …), if each card has its own.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kcard.errors import KcardError

if TYPE_CHECKING:
    from torch import Tensor

# Embedding rows that replace the base's, as in adapters with trained tokens.
#
# Each card has a few; they are found by binary search, so that a card costs only its own rows and not a table of the
# whole vocabulary.


@dataclass(frozen=True)
class Rows:
    """n rows for each of C cards, possibly with duplicates.

    tokens  int64 (C, n), their token ids, sorted; for a card without rows, the vocabulary size
    weight  (C, n, d)
    """

    tokens: "Tensor"
    weight: "Tensor"

    def embed(self, tokens: "Tensor", x: "Tensor") -> "Tensor":
        """Replace rows of x (rows, d), embeddings of tokens (rows,), by the cards' own if present."""
        import torch

        cards, count, width = self.weight.shape
        wanted_tokens = tokens.reshape(cards, -1)
        place = torch.searchsorted(self.tokens, wanted_tokens).clamp(max=count - 1)
        is_own = self.tokens.gather(1, place) == wanted_tokens
        own = self.weight.gather(1, place.unsqueeze(2).expand(-1, -1, width))
        return torch.where(is_own.unsqueeze(2), own, x.view(cards, -1, width)).view_as(x)

    def score(self, x: "Tensor", logits: "Tensor") -> None:
        """Write the logits of tokens with own rows, for states x (rows, d), into logits (rows, vocabulary)."""
        import torch

        cards, _, width = self.weight.shape
        grouped = logits.view(cards, -1, logits.shape[-1])
        words = logits.shape[-1]
        places = self.tokens.clamp(max=words - 1).unsqueeze(1).expand(-1, grouped.shape[1], -1)
        own = torch.bmm(x.view(cards, -1, width), self.weight.transpose(1, 2))
        # A card has rows or none, so kept and replaced logits never mix within a card.
        own = torch.where((self.tokens < words).unsqueeze(1), own, grouped.gather(2, places))
        grouped.scatter_(2, places, own)


def joined(rows: "Sequence[tuple[Tensor, Tensor] | None]", table: "Tensor") -> Rows | None:
    """Combine the rows of several cards, (tokens, weight) each, that replace those of `table`; None if no card has any.

    A card with fewer rows than others repeats its last one.
    """
    import torch

    most = max((len(tokens) for tokens, _ in filter(None, rows)), default=0)
    if not most:
        return None
    numbers = torch.full((len(rows), most), len(table), dtype=torch.int64, device=table.device)
    # Use the memory layout that is fastest for the head's products with few rows.
    weight = table.new_zeros((len(rows), table.shape[1], most)).transpose(1, 2)
    for card, own in enumerate(rows):
        if own is not None and len(own[0]):
            order = own[0].argsort()
            order = torch.cat([order, order[-1:].expand(most - len(order))])
            numbers[card], weight[card] = own[0][order], own[1][order]
    return Rows(numbers, weight)


class UnsupportedModel(KcardError):
    """The engine does not support a model or adapter, for the reason given; transformers may."""


@dataclass(frozen=True)
class Part:
    """The source of some outputs of a linear layer: a module of the model, by name; `width` outputs.

    order  int64 (width,): index of each output in the module; None: unchanged
    """

    module: str
    width: int
    order: "Tensor | None" = None


@dataclass(frozen=True)
class Up:
    """The second half of a part's adapters: weight (C, rank, width), scaled, for outputs from index `first` on."""

    weight: "Tensor"
    first: int


@dataclass(frozen=True)
class LowRank:
    """The LoRA update of a linear layer, one per card. down (C, ranks, in): concatenated over parts."""

    down: "Tensor"
    ups: tuple[Up, ...]

    def add(self, x: "Tensor", y: "Tensor") -> None:
        """Add to y (rows, out) in place, for input x (rows, in)."""
        import torch

        cards = self.down.shape[0]
        low = torch.bmm(x.view(cards, -1, x.shape[-1]), self.down.transpose(1, 2))
        grouped = y.view(cards, -1, y.shape[-1])
        ranks = [up.weight.shape[1] for up in self.ups]
        # In fp32 on a CPU, baddbmm_ on columns of y runs card by card, which takes five times as long.
        apart = y.dtype == torch.float32 and y.device.type == "cpu"
        for part, up in zip(low.split(ranks, dim=-1), self.ups, strict=True):
            columns = grouped[..., up.first : up.first + up.weight.shape[2]]
            if apart:
                columns.add_(torch.bmm(part.contiguous(), up.weight))
            else:
                columns.baddbmm_(part.contiguous(), up.weight)


@dataclass(frozen=True)
class Linear:
    """y = W x + b. `weight` (out, in), or (C, out, in) if each card has its own; `low` is added on top.

    A shared weight may be packed (kcard.cards.models.batched.decoder).

    parts  the modules whose outputs these are, in order
    own    cards' rows that replace the weight's, if this head is tied to the embeddings
    """

    weight: "Tensor"
    bias: "Tensor | None" = None
    low: LowRank | None = None
    parts: tuple[Part, ...] = ()
    own: Rows | None = None

    def __call__(self, x: "Tensor") -> "Tensor":
        """Map (rows, in) -> (rows, out)."""
        import torch

        y: Tensor
        if self.weight.dim() == 3:
            cards = self.weight.shape[0]
            y = torch.bmm(x.view(cards, -1, x.shape[-1]), self.weight.transpose(1, 2))
            if self.bias is not None:
                y += self.bias.unsqueeze(1)
            return y.view(x.shape[0], -1)
        if self.weight.is_mkldnn:
            y = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        else:
            y = torch.nn.functional.linear(x, self.weight, self.bias)
        if self.low is not None:
            self.low.add(x, y)
        if self.own is not None:
            self.own.score(x, y)
        return y


@dataclass(frozen=True)
class Norm:
    """LayerNorm, or RMSNorm if `rms`. weight (d,), or (C, d) if each card has its own."""

    weight: "Tensor"
    bias: "Tensor | None"
    eps: float
    rms: bool = False

    def __call__(self, x: "Tensor") -> "Tensor":
        """Map (rows, d) -> (rows, d)."""
        from torch.nn.functional import layer_norm, rms_norm

        size = (x.shape[-1],)
        if self.weight.dim() == 1:
            if self.rms:
                return rms_norm(x, size, self.weight, self.eps)
            return layer_norm(x, size, self.weight, self.bias, self.eps)
        plain = rms_norm(x, size, None, self.eps) if self.rms else layer_norm(x, size, None, None, self.eps)
        grouped = plain.view(self.weight.shape[0], -1, x.shape[-1]) * self.weight.unsqueeze(1)
        if self.bias is not None:
            grouped = grouped + self.bias.unsqueeze(1)
        return grouped.view_as(x)


@dataclass(frozen=True)
class Embedding:
    """A table (n, d), or (C, n, d) if each card has its own. `offset` is added to every index.

    module  its name in the model, if adapters may change it
    own     cards' rows that replace the table's
    """

    table: "Tensor"
    offset: int = 0
    module: str = ""
    own: Rows | None = None

    def __call__(self, indices: "Tensor") -> "Tensor":
        """Map int64 (rows,) -> (rows, d)."""
        import torch
        from torch.nn.functional import embedding

        if self.table.dim() == 2:
            x = embedding(indices + self.offset, self.table)
            return x if self.own is None else self.own.embed(indices, x)
        cards, count, width = self.table.shape
        first = torch.arange(cards, device=indices.device).repeat_interleave(len(indices) // cards) * count
        return embedding(indices + self.offset + first, self.table.view(-1, width))

    def row(self, card: int, index: int) -> "Tensor":
        """Return card `card`'s row at `index`, (d,)."""
        table = self.table if self.table.dim() == 2 else self.table[card]
        x = table[index + self.offset]
        if self.own is None:
            return x
        at = (self.own.tokens[card] == index).nonzero()
        return self.own.weight[card, at[0, 0]] if len(at) else x


@dataclass(frozen=True)
class Rotary:
    """Rotary positions over the first `2 x len(frequencies)` dimensions of a head; the others are unchanged."""

    frequencies: "Tensor"
    scale: float = 1.0

    def tables(self, positions: "Tensor", dtype: "object") -> "tuple[Tensor, Tensor]":
        """Compute cosines and sines, (rows, 1, dimensions), for positions (rows,)."""
        import torch

        angles = positions.float().unsqueeze(1) * self.frequencies
        angles = torch.cat([angles, angles], dim=1).unsqueeze(1)
        return (angles.cos() * self.scale).to(dtype), (angles.sin() * self.scale).to(dtype)  # type: ignore[call-overload]

    def turn(self, x: "Tensor", tables: "tuple[Tensor, Tensor]") -> "Tensor":
        """Rotate (rows, heads, head_dim) by the rows' positions."""
        import torch

        cos, sin = tables
        size = cos.shape[-1]
        turned, rest = x[..., :size], x[..., size:]
        half = size // 2
        swapped = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1)
        turned = turned * cos + swapped * sin
        return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned


@dataclass(frozen=True)
class Mlp:
    """down(act(up x)), or down(act(gate x) * up x) if the first layer concatenates gate and up."""

    up: Linear
    down: Linear
    activation: "Callable[[Tensor], Tensor]"
    gated: bool = False

    def __call__(self, x: "Tensor") -> "Tensor":
        inner = self.up(x)
        if not self.gated:
            return self.down(self.activation(inner))
        gate, up = inner.chunk(2, dim=-1)
        return self.down(self.activation(gate) * up)


@dataclass(frozen=True)
class Layer:
    """One block. `qkv` outputs queries, keys and values, concatenated.

    parallel  attention and MLP both read the block's input
    """

    attention_norm: Norm
    qkv: Linear
    out: Linear
    mlp_norm: Norm
    mlp: Mlp
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    parallel: bool = False


@dataclass(frozen=True)
class Shape:
    """Attention heads: number for queries, number for keys and values, and width of each."""

    heads: int
    kv_heads: int
    width: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Columns of queries, keys and values in the output of `qkv`."""
        return self.heads * self.width, self.kv_heads * self.width, self.kv_heads * self.width


@dataclass(frozen=True)
class Decoder:
    """A whole model.

    positions  a learned table, or None if positions are rotary
    longest    maximum tokens
    tied       the head is the table of `embed`, and a card's own rows are in both
    """

    embed: Embedding
    positions: Embedding | None
    rotary: Rotary | None
    layers: tuple[Layer, ...]
    final_norm: Norm
    head: Linear
    shape: Shape
    longest: int
    tied: bool = False

    @property
    def linears(self) -> list[Linear]:
        """All linear layers, the head last."""
        linears = []
        for layer in self.layers:
            linears += [layer.qkv, layer.out, layer.mlp.up, layer.mlp.down]
        return [*linears, self.head]


# Traverses, counts and maps the tensors of a decoder. A tensor that is used twice (tied weights) stays shared.

T = TypeVar("T")
# Parts that cards of one shape share.
SHARED_PARTS = (Part, Rotary)


def tensors(value: Any) -> "Iterator[Tensor]":
    """Yield every tensor of the weights, in the same order for equal shapes; tied ones at each use."""
    from torch import Tensor

    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value) and not isinstance(value, SHARED_PARTS):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def mapped(value: T, change: "Callable[[Tensor], Tensor]") -> T:
    """Return a copy with `change` applied once to every tensor of the weights."""
    changed: T = _map_tensors(value, change, {})
    return changed


def map_linears(decoder: Decoder, change: Callable[[Linear], Linear]) -> Decoder:
    """Apply `change` to each of the decoder's linear layers."""
    layers = tuple(
        replace(
            layer,
            qkv=change(layer.qkv),
            out=change(layer.out),
            mlp=replace(layer.mlp, up=change(layer.mlp.up), down=change(layer.mlp.down)),
        )
        for layer in decoder.layers
    )
    return replace(decoder, layers=layers, head=change(decoder.head))


def size(value: Any) -> int:
    """Return the bytes of the weights."""
    return sum({_storage_key(t): t.numel() * t.element_size() for t in tensors(value)}.values())


def signature(value: Any) -> str:
    """Return a string equal for models that can be stacked: same shapes, dtype, activations, positions."""
    from torch import Tensor

    if isinstance(value, Tensor):
        return f"{value.dtype}{tuple(value.shape)}"
    if isinstance(value, Part):
        return ""
    if isinstance(value, Rotary):
        return f"{value.frequencies.tolist()}{value.scale}"
    if isinstance(value, tuple):
        return f"({','.join(map(signature, value))})"
    if is_dataclass(value):
        return f"{type(value).__name__}{[signature(getattr(value, field.name)) for field in fields(value)]}"
    return str(value)


def _map_tensors(value: Any, change: "Callable[[Tensor], Tensor]", done: "dict[object, Tensor]") -> Any:
    from torch import Tensor

    if isinstance(value, Tensor):
        place = _storage_key(value)
        if place not in done:
            done[place] = change(value)
        return done[place]
    if isinstance(value, tuple):
        return tuple(_map_tensors(item, change, done) for item in value)
    if not is_dataclass(value) or isinstance(value, (*SHARED_PARTS, type)):
        return value
    changed = {field.name: _map_tensors(getattr(value, field.name), change, done) for field in fields(value)}
    return replace(value, **changed)


def _storage_key(tensor: "Tensor") -> object:
    if tensor.is_mkldnn:  # packed, which has no pointer
        return id(tensor)
    return tensor.data_ptr(), tuple(tensor.shape)


# Weights in oneDNN's blocked layout, reordered once instead of in every product.
#
# With few rows, as in decoding, products are 1.1 to 3 times as fast as with plain weights.


def packed(decoder: Decoder) -> Decoder:
    """Pack the weights of the decoder's linear layers, replacing the plain ones.

    A head that shares its weight with the embeddings gets its own copy. Returns the decoder unchanged if this CPU, or
    the weights' device or dtype, does not support packed products.
    """
    import torch

    # A two-dimensional weight is shared by all cards.
    weight = decoder.head.weight
    if weight.device.type != "cpu" or weight.dim() != 2 or not torch.backends.mkldnn.is_available():
        return decoder
    if platform.machine() not in ("x86_64", "AMD64"):
        return decoder
    if weight.dtype not in (torch.bfloat16, torch.float32):
        return decoder

    def change(linear: Linear) -> Linear:
        return replace(linear, weight=torch.ops.mkldnn._reorder_linear_weight(linear.weight, None))

    with torch.inference_mode():
        if weight.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return decoder
        return map_linears(decoder, change)
