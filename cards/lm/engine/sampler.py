"""The next token of every row: greedy, or drawn among the top k with the row's own noise.

The top k of a wide vocabulary are found in two steps: of groups of tokens, the k with the highest maxima hold them all.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.cards.lm.engine.noise import gumbel

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Sampler", "highest"]

# The tokens whose numbers leave the same rest form a group: maxima over such groups are taken in wide vectors. A power
# of two would be slower, as a group's tokens would share a few lines of the processor's cache.
GROUPS = 768


@dataclass(frozen=True)
class Sampler:
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
    each = width // GROUPS
    if each < 4 or 2 * k > GROUPS:
        best = torch.topk(logits, k, dim=-1, sorted=False)
        return best.values, best.indices
    grouped = logits[:, : each * GROUPS].view(rows, each, GROUPS)
    top = torch.topk(grouped.amax(1), k, dim=-1, sorted=False).indices
    numbers = torch.arange(width, device=top.device)
    where = (top.unsqueeze(1) + numbers[: each * GROUPS : GROUPS].unsqueeze(1)).view(rows, each * k)
    where = torch.cat([where, numbers[each * GROUPS :].expand(rows, -1)], dim=1)
    best = torch.topk(logits.gather(1, where), k, dim=-1, sorted=False)
    return best.values, where.gather(1, best.indices)
