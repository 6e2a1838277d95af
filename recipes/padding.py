"""Pad pairs of texts into a batch for torch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcard.embedded.minilm import PAD

if TYPE_CHECKING:
    from torch import Tensor


def padded(rows: Sequence[tuple[Sequence[int], int]]) -> "tuple[Tensor, Tensor, Tensor]":
    """Return ids, mask and types, (n, t), of rows of token ids; those from a place on are the second text's."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    ids = pad_sequence([torch.tensor(row) for row, _ in rows], batch_first=True, padding_value=PAD)
    mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for place, (row, begin) in enumerate(rows):
        mask[place, : len(row)] = 1
        types[place, begin : len(row)] = 1
    return ids, mask, types
