"""The next token of every row: greedy, or drawn among the top k with the row's own noise.

The top k of a wide vocabulary are found in two steps: the k blocks with the highest maxima hold them all.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.cards.noise import gumbel

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Drawing", "highest"]

BLOCK = 64


@dataclass(frozen=True)
class Drawing:
    """How tokens are drawn. `seeds`: int64 (rows,), one a document; not looked at where the temperature is 0.

    `top_k` 0: among all tokens.
    """

    seeds: "Tensor"
    temperature: float
    top_k: int

    def draw(self, logits: "Tensor", step: int) -> "Tensor":
        """int64 (rows,), for logits (rows, vocabulary) of step 0, 1, …"""
        if self.temperature == 0:
            return logits.argmax(-1)
        k = min(self.top_k, logits.shape[1]) if self.top_k > 0 else logits.shape[1]
        values, tokens = highest(logits, k)
        noise = gumbel(self.seeds, step, tokens)
        chosen = (values.double() / self.temperature + noise).argmax(-1, keepdim=True)
        return tokens.gather(1, chosen).squeeze(1)


def highest(logits: "Tensor", k: int) -> "tuple[Tensor, Tensor]":
    """The k highest of each row and where they are, as torch.topk, in no order."""
    import torch

    rows, width = logits.shape
    blocks = width // BLOCK
    if blocks <= 2 * k:
        best = torch.topk(logits, k, dim=-1, sorted=False)
        return best.values, best.indices
    whole = logits[:, : blocks * BLOCK].view(rows, blocks, BLOCK)
    top = torch.topk(whole.amax(-1), k, dim=-1, sorted=False).indices
    chosen = whole.gather(1, top.unsqueeze(-1).expand(-1, -1, BLOCK)).reshape(rows, k * BLOCK)
    where = (top.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=top.device)).reshape(rows, k * BLOCK)
    if rest := width - blocks * BLOCK:
        chosen = torch.cat([chosen, logits[:, -rest:]], dim=1)
        tail = torch.arange(width - rest, width, device=top.device).expand(rows, -1)
        where = torch.cat([where, tail], dim=1)
    best = torch.topk(chosen, k, dim=-1, sorted=False)
    return best.values, where.gather(1, best.indices)
