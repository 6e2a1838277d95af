"""How many cores a training run takes."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["one_thread"]


@contextmanager
def one_thread() -> Iterator[None]:
    """One core while open. Matrices of 128 columns gain little from a second one, sums are then added in the
    same order every time, and another core is free for another card."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
