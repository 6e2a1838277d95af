"""How long training will take, estimated before it begins: a few steps on throw-away weights, a few questions embedded.

It measures the machine as it is at that moment; what else runs on it later is not foreseen.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kcard.training.loop import Job, step
from kcard.training.progress import Note, duration

__all__ = ["Estimate", "seconds_a_step", "seconds_to_embed"]

WARM, MEASURED = 3, 24
BLOCKS, BLOCK = 4, 64


@dataclass(frozen=True)
class Estimate:
    """`questions` to embed and `steps` to take, and the wall time of both, in seconds."""

    questions: int
    embedding: float
    steps: int
    stepping: float

    @classmethod
    def of(cls, trial: Job, questions: Sequence[str], embed: Callable[[Sequence[str]], Any]) -> "Estimate":
        """By a few steps of `trial`, a job like the one to come on weights of its own, and by embedding a sample."""
        stepping = trial.steps * seconds_a_step(trial)
        return cls(len(questions), seconds_to_embed(questions, embed), trial.steps, stepping)

    @property
    def seconds(self) -> float:
        return self.embedding + self.stepping

    def note(self) -> Note:
        steps = f"{self.steps} steps"
        if self.questions:
            steps = (
                f"{duration(self.embedding)} to embed {self.questions} questions, "
                f"{duration(self.stepping)} for {steps}"
            )
        return Note(f"training takes about {duration(self.seconds)} on one core: {steps}")


def seconds_a_step(trial: Job, warm: int = WARM, measured: int = MEASURED) -> float:
    """Wall time, the mean of `measured` steps of `trial` after `warm` ones; they change its weights."""
    import torch

    batches: Sequence[Any] = trial.epoch(0)
    begun = 0.0
    for module in trial.modules.values():
        module.train()
    with torch.random.fork_rng(devices=[]):
        for number in range(warm + measured):
            if number == warm:
                begun = time.monotonic()
            step(trial, batches[number % len(batches)], number)
    return (time.monotonic() - begun) / measured


def seconds_to_embed(rows: Sequence[str], embed: Callable[[Sequence[str]], Any]) -> float:
    """How long `embed` takes for all `rows`, by a sample of them.

    Blocks of like length from all over, since that is how they are embedded: side by side in the order of length.
    """
    if not rows:
        return 0.0
    ordered = sorted(rows, key=len)
    blocks = [ordered[len(rows) * (2 * n + 1) // (2 * BLOCKS) :][:BLOCK] for n in range(BLOCKS)]
    embed(blocks[0][:8])
    begun = time.monotonic()
    for block in blocks:
        embed(block)
    return (time.monotonic() - begun) * len(rows) / sum(map(len, blocks))
