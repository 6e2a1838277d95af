"""The next token of every row: greedy, or sampled from the top k with the row's own noise.

Randomness belongs to a text, not to a batch: there is no generator state to carry, and all rows are sampled at once.
The top k of a large vocabulary are found in two steps: the k groups of tokens with the highest maxima contain them all.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# Tokens with equal ids modulo GROUPS form a group, so that maxima over groups are vectorized. A power of two would be
# slower, since a group's tokens would share a few cache lines.
GROUPS = 768


@dataclass(frozen=True)
class Sampler:
    """Sampling settings. `seeds`: int64 (rows,), one per document; ignored at temperature 0.

    `top_k` 0: all tokens.
    """

    seeds: "Tensor"
    temperature: float
    top_k: int

    def draw(self, logits: "Tensor", step: int) -> "Tensor":
        """Draw int64 (rows,) from logits (rows, vocabulary) of step 0, 1, …"""
        if self.temperature == 0:
            return logits.argmax(-1)
        if self.top_k > 0:
            values, tokens = highest(logits, min(self.top_k, logits.shape[1]))
        else:
            import torch

            values, tokens = logits, torch.arange(logits.shape[1], device=logits.device).expand_as(logits)
        noise = gumbel(self.seeds, step, tokens)
        chosen = (values.double() / self.temperature + noise).argmax(-1, keepdim=True)
        return tokens.gather(1, chosen).squeeze(1)


class DrawnTokens:
    """A LogitsProcessor of transformers that leaves only the token that each row's sampler draws, so that greedy
    decoding is an exact sample."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler, self._step = sampler, 0

    def __call__(self, input_ids: "Tensor", scores: "Tensor") -> "Tensor":
        import torch

        del input_ids
        drawn = self._sampler.draw(scores, self._step).unsqueeze(1)
        self._step += 1
        return torch.full_like(scores, -torch.inf).scatter(1, drawn, 0.0)


def highest(logits: "Tensor", k: int) -> "tuple[Tensor, Tensor]":
    """Return the k highest values and indices per row, as torch.topk, unsorted."""
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
    """Hash (seed, step, token) to Gumbel noise for candidate tokens, counter-based, so that a document is the same
    alone or in a batch, on a CPU or a GPU.

    seeds   int64 (rows,): one seed per document
    tokens  int64 (rows, k): token ids
    returns float64 (rows, k). argmax(logits + noise) is then an exact draw from softmax(logits)
            (the Gumbel-max trick).
    """
    import torch

    hashed = _mix(
        _mix(seeds + _as_int64(0x9E3779B97F4A7C15 * (step + 1))).unsqueeze(1)
        + tokens * _as_int64(0xD1B54A32D192ED03)
    )
    uniform = (_shift(hashed, 11).to(torch.float64) + 0.5) * 2.0**-53
    return -torch.log(-torch.log(uniform))


def _mix(x: "Tensor") -> "Tensor":
    """Apply SplitMix64's finalizer (Steele, Lea and Flood, 2014), which relies on wrapping int64 products."""
    x = (x ^ _shift(x, 30)) * _as_int64(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _as_int64(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: "Tensor", bits: int) -> "Tensor":
    """Shift right logically; torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _as_int64(word: int) -> int:
    """Return the low 64 bits of a number as a signed int64."""
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word
