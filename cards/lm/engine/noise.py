"""Randomness that belongs to a document, not to a batch: noise as a function of (seed, step, token).

There is no generator state to carry: a counter-based hash gives every token of every step its own number, so
that a document is the same alone or in a batch, on a CPU or a GPU, and all rows are drawn in one operation.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["gumbel"]


def gumbel(seeds: "Tensor", step: int, tokens: "Tensor") -> "Tensor":
    """Gumbel noise for candidate tokens.

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
