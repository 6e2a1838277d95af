"""Rows of the table of tokens that a card has in place of the base's, as adapters with trained tokens bring them.

Each card has a few; they are looked up by a binary search, so that a card costs what its own rows do and no table of
the whole vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Rows", "joined"]


@dataclass(frozen=True)
class Rows:
    """Of C cards, n each, of which some may be there twice.

    tokens  int64 (C, n), which rows they are, sorted; of a card that has none, the first number past the vocabulary
    weight  (C, n, d)
    """

    tokens: "Tensor"
    weight: "Tensor"

    def embed(self, tokens: "Tensor", x: "Tensor") -> "Tensor":
        """x (rows, d), what the base has for tokens (rows,), with the cards' own rows where there are such."""
        import torch

        cards, count, width = self.weight.shape
        asked = tokens.reshape(cards, -1)
        place = torch.searchsorted(self.tokens, asked).clamp(max=count - 1)
        found = self.tokens.gather(1, place) == asked
        own = self.weight.gather(1, place.unsqueeze(2).expand(-1, -1, width))
        return torch.where(found.unsqueeze(2), own, x.view(cards, -1, width)).view_as(x)

    def score(self, x: "Tensor", logits: "Tensor") -> None:
        """Into the logits (rows, vocabulary) of the states x (rows, d): those of tokens with rows of their own."""
        import torch

        cards, _, width = self.weight.shape
        grouped = logits.view(cards, -1, logits.shape[-1])
        words = logits.shape[-1]
        places = self.tokens.clamp(max=words - 1).unsqueeze(1).expand(-1, grouped.shape[1], -1)
        own = torch.bmm(x.view(cards, -1, width), self.weight.transpose(1, 2))
        # A card has rows, or none: what is kept here is never beside what is replaced.
        own = torch.where((self.tokens < words).unsqueeze(1), own, grouped.gather(2, places))
        grouped.scatter_(2, places, own)


def joined(found: "Sequence[tuple[Tensor, Tensor] | None]", table: "Tensor") -> Rows | None:
    """The rows of as many cards, (tokens, weight) of each, in place of those of `table`; None where no card has any.

    A card with fewer than others has its last one several times.
    """
    import torch

    most = max((len(tokens) for tokens, _ in filter(None, found)), default=0)
    if not most:
        return None
    numbers = torch.full((len(found), most), len(table), dtype=torch.int64, device=table.device)
    # In the order that the head's products with few rows read fastest.
    weight = table.new_zeros((len(found), table.shape[1], most)).transpose(1, 2)
    for card, own in enumerate(found):
        if own is not None and len(own[0]):
            order = own[0].argsort()
            order = torch.cat([order, order[-1:].expand(most - len(order))])
            numbers[card], weight[card] = own[0][order], own[1][order]
    return Rows(numbers, weight)
