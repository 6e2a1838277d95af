"""The next token of every row: greedy, or drawn among the top k with the row's own noise.

Randomness belongs to a document, not to a batch: there is no generator state to carry, and all rows are drawn at once.
The top k of a wide vocabulary are found in two steps: of groups of tokens, the k with the highest maxima hold them all.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Sampler", "gumbel", "highest"]

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


def gumbel(seeds: "Tensor", step: int, tokens: "Tensor") -> "Tensor":
    """Gumbel noise for candidate tokens: a counter-based hash of (seed, step, token), so that a document is the same
    alone or in a batch, on a CPU or a GPU.

    seeds   int64 (rows,): one seed a document
    tokens  int64 (rows, k): token ids
    returns float64 (rows, k). argmax(logits + noise) is then an exact draw from softmax(logits)
            (the Gumbel-max trick).
    """
    import torch

    hashed = _mix(
        _mix(seeds + _signed(0x9E3779B97F4A7C15 * (step + 1))).unsqueeze(1)
        + tokens * _signed(0xD1B54A32D192ED03)
    )
    uniform = (_shift(hashed, 11).to(torch.float64) + 0.5) * 2.0**-53
    return -torch.log(-torch.log(uniform))


def _mix(x: "Tensor") -> "Tensor":
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014); int64 products wrap, as it needs them to."""
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: "Tensor", bits: int) -> "Tensor":
    """Logical right shift; torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(word: int) -> int:
    """The last 64 bits of a number, as torch's int64 writes them."""
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word
