"""Many LoRA adapters on one base as one decoder: their matrices stacked, ranks padded with zeros.

A few batched products a layer then do all cards at once, exactly (S-LoRA, Sheng et al. 2023, does so for requests of
unlike cards; here every card has equally many rows).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine import rows
from kcard.cards.lm.engine.adapters import Adapter
from kcard.cards.lm.engine.decoder import Decoder, Layer, Linear, LowRank, Unsupported, Up
from kcard.cards.lm.engine.trees import relinked

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["added", "check", "modules", "stacked", "widths"]

# Bytes of a token's number.
NUMBER = 8


def widths(decoder: Decoder) -> dict[str, tuple[int, int]]:
    """The modules whose adapters can be stacked, by name: inputs and outputs."""
    linears = [linear for layer in decoder.layers for linear in modules(layer)]
    return {
        part.module: (linear.weight.shape[1], part.width)
        for linear in [*linears, decoder.head]
        for part in linear.parts
    }


def check(decoder: Decoder, adapter: Adapter) -> None:
    """Raise Unsupported where the adapter can't be stacked on this base."""
    known = widths(decoder)
    for module, (down, up) in adapter.modules.items():
        if module not in known:
            raise Unsupported(f"its adapter changes {module}")
        if (down.shape[1], up.shape[0]) != known[module]:
            raise Unsupported(f"its adapter of {module} does not fit the base")
    if adapter.rows is not None:
        _check_rows(decoder, adapter, *adapter.rows)


def _check_rows(decoder: Decoder, adapter: Adapter, tokens: "Tensor", weight: "Tensor") -> None:
    """The same of its rows of the table of tokens."""
    words, width = decoder.embed.table.shape
    if adapter.table != decoder.embed.module:
        raise Unsupported(f"its adapter changes {adapter.table}")
    if weight.shape != (len(tokens), width):
        raise Unsupported(
            f"its rows of {adapter.table} are {tuple(weight.shape)}, but must be {(len(tokens), width)}"
        )
    if len(tokens.unique()) < len(tokens):
        raise Unsupported("its trainable_token_indices name a token twice")
    if int(tokens.min()) < 0 or int(tokens.max()) >= words:
        raise Unsupported(
            f"its trainable_token_indices name a token that is not among the {words} of the base"
        )
    if decoder.tied and any(part.module in adapter.modules for part in decoder.head.parts):
        raise Unsupported("its adapter changes the head twice")


def added(decoder: Decoder, ranks: Sequence[Mapping[str, int]]) -> int:
    """Bytes that adapters take when they are stacked. ranks: of each, as Adapter has them."""
    linears = [linear for layer in decoder.layers for linear in modules(layer)]
    total = 0
    for linear in [*linears, decoder.head]:
        for part in linear.parts:
            rank = max((r.get(part.module, 0) for r in ranks), default=0)
            total += rank * (linear.weight.shape[1] + part.width) * linear.weight.element_size()
    table = decoder.embed.table
    own = max((r.get(decoder.embed.module, 0) for r in ranks), default=0)
    total += own * (table.shape[1] * table.element_size() + NUMBER)
    return total * len(ranks)


def modules(layer: Layer) -> tuple[Linear, ...]:
    """The linear layers of a block."""
    return layer.qkv, layer.out, layer.mlp.up, layer.mlp.down


def stacked(decoder: Decoder, adapters: Sequence[Adapter]) -> Decoder:
    """The base with the adapters of as many cards; rows must be ordered by card."""
    made = relinked(decoder, lambda linear: _with(linear, adapters))
    own = rows.joined([adapter.rows for adapter in adapters], decoder.embed.table)
    head = replace(made.head, own=own) if decoder.tied else made.head
    return replace(made, embed=replace(made.embed, own=own), head=head)


def _with(linear: Linear, adapters: Sequence[Adapter]) -> Linear:
    """The layer with the adapters' low-rank parts: of several parts side by side, each with ranks of its own."""
    import torch

    ranks = [max((_rank(adapter, part.module) for adapter in adapters), default=0) for part in linear.parts]
    if not sum(ranks):
        return linear
    like: Any = {"dtype": linear.weight.dtype, "device": linear.weight.device}
    down = torch.zeros((len(adapters), sum(ranks), linear.weight.shape[1]), **like)
    ups = []
    row = first = 0
    for part, rank in zip(linear.parts, ranks, strict=True):
        up = torch.zeros((len(adapters), rank, part.width), **like)
        for number, adapter in enumerate(adapters):
            if part.module in adapter.modules:
                a, b = adapter.modules[part.module]
                b = b if part.order is None else b[part.order]
                down[number, row : row + len(a)] = a
                up[number, : len(a)] = b.T
        if rank:
            ups.append(Up(up, first))
        row, first = row + rank, first + part.width
    return replace(linear, low=LowRank(down, tuple(ups)))


def _rank(adapter: Adapter, module: str) -> int:
    found: tuple[Tensor, Tensor] | None = adapter.modules.get(module)
    return 0 if found is None else found[0].shape[0]
