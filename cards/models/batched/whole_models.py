"""Whole models of one shape as one decoder: every weight gets the card as its first dimension.

Their vocabularies may differ: smaller ones are padded with tokens that are never sampled.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kcard.cards.models.batched.decoder import Decoder, Linear, map_linears, mapped, signature, tensors

if TYPE_CHECKING:
    from torch import Tensor


def architecture_signature(decoder: Decoder) -> str:
    """Return a string equal for models that can be stacked: same but for learned values and vocabulary."""
    table, head = decoder.embed.table, decoder.head
    tied = table.data_ptr() == head.weight.data_ptr()
    bias = None if head.bias is None else head.bias[:1]
    short = replace(
        decoder,
        embed=replace(decoder.embed, table=table[:1]),
        head=replace(head, weight=head.weight[:1], bias=bias),
    )
    return f"{signature(short)} {tied}"


def vocabulary(decoder: Decoder) -> int:
    """Return the vocabulary size of one card."""
    return decoder.embed.table.shape[0]


def size(decoder: Decoder) -> int:
    """Return the bytes of one card's model in a stack, which unties tied weights."""
    return sum(t.numel() * t.element_size() for t in tensors(decoder))


def joined(decoders: Iterable[Decoder], vocabularies: list[int]) -> Decoder:
    """Stack decoders of one architecture signature, with these vocabularies; rows must be ordered by card.

    They are read one at a time, so that at most one is in memory besides the stack.
    """
    import torch

    def copy_layout(linear: Linear) -> Linear:
        """Allocate in the layout that is fastest for products with few rows: measured, up to 3 times as fast."""
        count, out, into = linear.weight.shape
        weight = linear.weight.new_empty((count, out, into))
        if out > into:
            weight = linear.weight.new_empty((count, into, out)).transpose(1, 2)
        return replace(linear, weight=weight)

    stack: Decoder | None = None
    count, widest, unlike = len(vocabularies), max(vocabularies), len(set(vocabularies)) > 1
    with torch.no_grad():
        for number, decoder in enumerate(decoders):
            wide = _widen(decoder, widest) if unlike else decoder
            if stack is None:
                stack = map_linears(mapped(wide, lambda t: t.new_empty((count, *t.shape))), copy_layout)
            for place, weight in zip(tensors(stack), tensors(wide), strict=True):
                place[number].copy_(weight)
    assert stack is not None, "no decoder was given"
    return stack


def _widen(decoder: Decoder, tokens: int) -> Decoder:
    """Pad the vocabulary to `tokens`; added tokens have a logit of minus infinity."""
    import torch
    from torch.nn.functional import pad

    table, head = decoder.embed.table, decoder.head
    more = tokens - len(table)
    wide = pad(table, (0, 0, 0, more))
    weight = wide if table.data_ptr() == head.weight.data_ptr() else pad(head.weight, (0, 0, 0, more))
    bias = head.weight.new_zeros(len(table)) if head.bias is None else head.bias
    return replace(
        decoder,
        embed=replace(decoder.embed, table=wide),
        head=replace(head, weight=weight, bias=pad(bias, (0, more), value=-torch.inf)),
    )


def part(decoder: Decoder, first: int, last: int, cards: int) -> Decoder:
    """Return the decoder of its `cards` first to last - 1, as views of their weights.

    For a single card of whole models, a plain decoder without the dimension.
    """
    if (first, last) == (0, cards):
        return decoder
    if decoder.embed.table.dim() == 3:
        return mapped(decoder, lambda t: t[first] if last - first == 1 else t[first:last])
    return _map_own(decoder, lambda t: t[first:last])


def cards(decoder: Decoder) -> int | None:
    """Return the decoder's number of cards; None for one model that all rows share."""
    if decoder.embed.table.dim() == 3:
        return decoder.embed.table.shape[0]
    if decoder.embed.own is not None:
        return decoder.embed.own.tokens.shape[0]
    for linear in decoder.linears:
        if linear.low is not None:
            return linear.low.down.shape[0]
    return None


def picked(decoder: Decoder, chosen: "Tensor") -> Decoder:
    """Return the decoder of some cards, int64 indices, copying only their own weights."""

    def own(tensor: "Tensor") -> "Tensor":
        if tensor.dim() == 3 and tensor.stride(1) == 1:
            return tensor.transpose(1, 2)[chosen].transpose(1, 2)  # keep the layout
        return tensor[chosen]

    if decoder.embed.table.dim() == 3:
        return mapped(decoder, own)
    return _map_own(decoder, own)


def _map_own(decoder: Decoder, change: "Callable[[Tensor], Tensor]") -> Decoder:
    """Apply `change` to the cards' additions to the base."""
    rows = mapped(decoder.embed.own, change)

    def changed(linear: Linear) -> Linear:
        if linear.low is None and linear.own is None:
            return linear
        return replace(linear, low=mapped(linear.low, change), own=None if linear.own is None else rows)

    return replace(map_linears(decoder, changed), embed=replace(decoder.embed, own=rows))
