"""What a batch and a load cost on a real worker, and how much two busy neighbours slow each other down."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.real_worker import Batch
from benchmarks.scale.worker import Costs

__all__ = ["Calibration", "fitted"]


@dataclass(frozen=True)
class Calibration:
    """Seconds: a batch of n questions takes `fixed` + n * `each`, times one of the `ratios`; a load takes `load`.

    `interference`: how many times as long both take while the neighbour is busy.
    """

    fixed: float
    each: float
    ratios: NDArray[np.float64]
    load: float
    interference: float = 1.0

    def costs(self, seed: int) -> Costs:
        """Drawn anew for each batch."""
        draws = np.random.default_rng(seed)

        def batch(questions: int) -> float:
            ratio = self.ratios[draws.integers(len(self.ratios))]
            return float((self.fixed + self.each * questions) * ratio)

        return Costs(batch, lambda tier: self.load if tier else 0.0)

    def expected(self, batch: Batch) -> float:
        """Seconds of that batch without a busy neighbour."""
        return self.fixed + self.each * len(batch.questions) + (0.0 if batch.hit else self.load)


def fitted(alone: Sequence[Batch], together: Sequence[Sequence[Batch]]) -> Calibration:
    """From the batches of one worker that worked alone, and of neighbours that worked at the same time."""
    hits = [batch for batch in alone if batch.hit]
    sizes = np.array([len(batch.questions) for batch in hits])
    seconds = np.array([_seconds(batch) for batch in hits])
    each = max(0.0, float(np.polyfit(sizes, seconds, 1)[0])) if len(set(sizes)) > 1 else 0.0
    fixed = float((seconds - each * sizes).mean())
    bare = Calibration(fixed, each, seconds / (fixed + each * sizes), 0.0)
    load = np.mean([_seconds(batch) - bare.expected(batch) for batch in alone if not batch.hit])
    whole = Calibration(bare.fixed, bare.each, bare.ratios, max(0.0, float(load)))
    slowed = [batch for worker in together for batch in _in_company(worker, together)]
    factor = sum(map(_seconds, slowed)) / sum(map(whole.expected, slowed)) if slowed else 1.0
    return Calibration(whole.fixed, whole.each, whole.ratios, whole.load, factor)


def _seconds(batch: Batch) -> float:
    return batch.finished - batch.started


def _in_company(worker: Sequence[Batch], workers: Sequence[Sequence[Batch]]) -> list[Batch]:
    """The batches of a worker during all of which every other worker was between two batches that follow at once."""
    spans = [_spans(other) for other in workers if other is not worker]
    return [
        batch
        for batch in worker
        if all(
            any(start <= batch.started and batch.finished <= end for start, end in found) for found in spans
        )
    ]


def _spans(batches: Sequence[Batch], gap: float = 0.002) -> list[tuple[float, float]]:
    """When the worker was busy without a pause longer than `gap` seconds."""
    if not batches:
        return []
    starts = [batches[0].started] + [b.started for a, b in pairwise(batches) if b.started - a.finished > gap]
    ends = [a.finished for a, b in pairwise(batches) if b.started - a.finished > gap] + [batches[-1].finished]
    return list(zip(starts, ends, strict=True))
