"""Prompts of one batch: as token ids or as embeddings, and padded to one length."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcard.cards.lm.engine.decoder import Decoder

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Batch", "Prompts", "batched"]


@dataclass(frozen=True)
class Prompts:
    """Prompts of one batch or many: `ids`, token ids a row, or `embeddings`, (rows, length, width)."""

    ids: tuple[tuple[int, ...], ...] = ()
    embeddings: "Tensor | None" = None

    def __len__(self) -> int:
        return len(self.ids) if self.embeddings is None else len(self.embeddings)

    def length(self, row: int) -> int:
        return len(self.ids[row]) if self.embeddings is None else self.embeddings.shape[1]

    def pick(self, rows: Sequence[int]) -> "Prompts":
        if self.embeddings is None:
            return replace(self, ids=tuple(self.ids[i] for i in rows))
        return replace(self, embeddings=self.embeddings[list(rows)])


@dataclass(frozen=True)
class Batch:
    """Prompts of one length, padded on the left, ordered by card.

    ids         int64 (prompts, length); or, with `embeddings`, not looked at
    embeddings  (prompts, length, d) where prompts are given as embeddings
    mask        bool (prompts, length): False for padding; None where there is none
    documents   how many documents each prompt gets
    """

    ids: "Tensor"
    mask: "Tensor | None"
    documents: int
    embeddings: "Tensor | None" = None

    @property
    def prompts(self) -> int:
        return self.ids.shape[0] if self.embeddings is None else self.embeddings.shape[0]

    @property
    def length(self) -> int:
        return self.ids.shape[1] if self.embeddings is None else self.embeddings.shape[1]


def batched(
    decoder: Decoder, prompts: Prompts, documents: int, continuations: Sequence[Sequence[int]] = ()
) -> Batch:
    """Prompts, each with its continuation where there are any, padded on the left to one length."""
    import torch

    device = decoder.embed.table.device
    more = continuations or ((),) * len(prompts)
    lengths = [prompts.length(row) + len(ids) for row, ids in enumerate(more)]
    longest = max(lengths)
    mask: Tensor | None = None
    if min(lengths) < longest:
        places = torch.arange(longest, device=device)
        mask = places >= longest - torch.tensor(lengths, device=device).unsqueeze(1)
    if prompts.embeddings is None:
        rows = [[*prompt, *ids] for prompt, ids in zip(prompts.ids, more, strict=True)]
        ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows], device=device)
        return Batch(ids, mask, documents)
    width = prompts.embeddings.shape[-1]
    embedded = prompts.embeddings.new_zeros((len(prompts), longest, width))
    for row, tokens in enumerate(more):
        embedded[row, longest - lengths[row] : longest - len(tokens)] = prompts.embeddings[row]
        if tokens:
            embedded[row, longest - len(tokens) :] = decoder.embed(torch.tensor(list(tokens), device=device))
    return Batch(torch.empty((0, 0), dtype=torch.int64, device=device), mask, documents, embedded)
