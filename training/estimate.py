"""How long a card's model takes to train on this machine, measured before it begins: a few steps on throw-away weights
and a few texts embedded; and how many steps fit into the minutes that it has.

It measures the machine as it is at that moment; what else runs on it later is not foreseen.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kcard.training.loop import Job, step
from kcard.training.progress import Note, duration

__all__ = ["MINUTES", "Estimate", "seconds_a_step", "seconds_to_embed", "spread"]

T = TypeVar("T")

MINUTES = 3.0  # that training an embedded card's model takes at most, unless told otherwise
SPARE = 0.1  # of them, for what the measurement does not foresee
WARM, MEASURED = 2, 24  # steps
BLOCKS, BLOCK = 8, 32  # texts that are embedded
PROBE = 0.5  # seconds after which no further step is taken; of embedding, half of them


@dataclass(frozen=True)
class Estimate:
    """What training a card's model takes here.

    needed     steps after which it recalls what it read
    half       steps after which it recalls half of that
    a_step     seconds
    a_text     seconds to embed one
    embedded   how many texts are to be embedded for a number of steps
    minutes    that it may take; None: as many as it needs
    """

    needed: int
    half: int
    a_step: float
    a_text: float = 0.0
    embedded: Callable[[int], int] = lambda _: 0
    minutes: float | None = None

    @property
    def steps(self) -> int:
        """Those that are taken: `needed`, or as many as fit into the minutes, one at least."""
        if self.minutes is None or self._fits(self.needed):
            return self.needed
        low, high = 1, self.needed
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(middle) else (low, middle)
        return low

    @property
    def is_enough(self) -> bool:
        """Whether the model recalls half of what it reads in these steps."""
        return self.steps >= self.half

    @property
    def seconds(self) -> float:
        """Wall time of `steps` and of embedding what they ask."""
        return self._seconds(self.steps)

    @property
    def minutes_needed(self) -> int:
        """Whole minutes into which the needed steps fit."""
        return math.ceil(self._seconds(self.needed) / (1 - SPARE) / 60)

    def note(self) -> Note:
        """How long training takes and what that gives."""
        steps = self.steps
        parts = f"{steps:,} steps"
        if texts := self.embedded(steps):
            embedding, stepping = duration(texts * self.a_text), duration(steps * self.a_step)
            parts = f"{embedding} to embed {texts:,} questions, {stepping} for {parts}"
        if steps < self.needed:
            parts += (
                f" of the {self.needed:,} that the corpus needs (--minutes {self.minutes_needed} gives all)"
            )
        return Note(f"training takes about {duration(self.seconds)} on one core: {parts}")

    def refusal(self) -> str:
        """Why no model is worth training in these minutes, and in how many it would be."""
        return (
            f"in {_minutes(self.minutes or 0)} a model would learn less than half of it ({self.steps:,} of "
            f"{self.needed:,} steps): --minutes {self.minutes_needed} is enough here"
        )

    def _seconds(self, steps: int) -> float:
        return self.embedded(steps) * self.a_text + steps * self.a_step

    def _fits(self, steps: int) -> bool:
        return self.minutes is not None and self._seconds(steps) <= (1 - SPARE) * 60 * self.minutes


def seconds_a_step(trial: Job, warm: int = WARM, measured: int = MEASURED, within: float = math.inf) -> float:
    """Wall time, the mean of `measured` steps of `trial` after `warm` ones; they change its weights.

    within  seconds after which no further step of either kind is taken, one at least
    """
    import torch

    batches: Sequence[Any] = trial.epoch(0)
    for module in trial.modules.values():
        module.train()
    number = 0

    def take(most: int) -> float:
        """Seconds a step of at most so many steps."""
        nonlocal number
        begun, first = time.monotonic(), number
        while number == first or (number < first + most and time.monotonic() - begun < within):
            step(trial, batches[number % len(batches)], number)
            number += 1
        return (time.monotonic() - begun) / (number - first)

    with torch.random.fork_rng(devices=[]):
        take(warm)
        return take(measured)


def seconds_to_embed(rows: Sequence[str], embed: Callable[[Sequence[str]], Any]) -> float:
    """How long `embed` takes for all `rows`, by a sample of them.

    Blocks of like length from all over, since that is how they are embedded: side by side in the order of length.
    """
    if not rows:
        return 0.0
    ordered = sorted(rows, key=len)
    blocks = [ordered[len(rows) * (2 * n + 1) // (2 * BLOCKS) :][:BLOCK] for n in range(BLOCKS)]
    embed(blocks[0][:8])
    begun, count = time.monotonic(), 0
    for block in spread(blocks):
        embed(block)
        count += len(block)
        if time.monotonic() - begun > PROBE / 2:
            break
    return (time.monotonic() - begun) * len(rows) / count


def spread(rows: Sequence[T]) -> list[T]:
    """The rows in an order whose first ones lie far from each other: the first, the middle, the quarters, ..."""
    bits = len(rows).bit_length()
    return [rows[place] for place in sorted(range(len(rows)), key=lambda n: f"{n:0{bits}b}"[::-1])]


def _minutes(count: float) -> str:
    return f"{count:g} minute{'' if count == 1 else 's'}"
