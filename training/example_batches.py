"""Examples become batches: rows of like length together, so that little is padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from kcard.batches import batched

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["IGNORED", "TrainingExample", "bucketed", "collate", "grouped"]

IGNORED = -100


@dataclass(frozen=True)
class TrainingExample:
    """`prompt` is read, `target` is learned; both are whole, special tokens included.

    `vector`: which row of the question embeddings is the prefix, where the prompt is one.
    """

    prompt: tuple[int, ...]
    target: tuple[int, ...]
    vector: int = 0

    def __len__(self) -> int:
        return len(self.prompt) + len(self.target)

    @property
    def learned(self) -> int:
        """Tokens with a loss: the target, whose first one needs something before it."""
        return len(self.target) if self.prompt else len(self.target) - 1


def bucketed(examples: Sequence[TrainingExample], tokens: int, rng: Random) -> list[list[TrainingExample]]:
    """Batches of at most `tokens` tokens with padding, in random order; a longer example stands alone."""
    batches: list[list[TrainingExample]] = []
    batch: list[TrainingExample] = []
    jitter = {id(example): len(example) + 3 * rng.random() for example in examples}
    for example in sorted(examples, key=lambda e: jitter[id(e)]):
        # Sorted with jitter, so the longest so far may lie a few tokens above this one.
        longest = max([len(example), *(len(e) for e in batch[-8:])])
        if batch and longest * (len(batch) + 1) > tokens:
            batches.append(batch)
            batch = []
        batch.append(example)
    if batch:
        batches.append(batch)
    rng.shuffle(batches)
    return batches


def grouped(examples: Sequence[TrainingExample], size: int, rng: Random) -> list[list[TrainingExample]]:
    """Batches of `size` examples, in random order; within a hundred batches rows of like length meet."""
    order = rng.sample(range(len(examples)), len(examples))
    batches: list[list[TrainingExample]] = []
    for window in batched(order, 100 * size):
        near = sorted((examples[i] for i in window), key=len)
        batches += batched(near, size)
    rng.shuffle(batches)
    return batches


def collate(batch: Sequence[TrainingExample], pad: int) -> "tuple[Tensor, Tensor]":
    """Token ids and labels, both (rows, longest), padded on the right; prompt and padding have no label."""
    import torch

    longest = max(len(example) for example in batch)
    ids = torch.full((len(batch), longest), pad)
    labels = torch.full((len(batch), longest), IGNORED)
    for row, example in enumerate(batch):
        tokens = torch.tensor(example.prompt + example.target)
        ids[row, : len(tokens)] = tokens
        labels[row, len(example.prompt) : len(tokens)] = tokens[len(example.prompt) :]
    return ids, labels
