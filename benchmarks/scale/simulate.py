"""Discrete-event simulation: questions arrive, are placed, wait and are answered by workers."""

import heapq
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.placement import Placement
from benchmarks.scale.worker import Worker
from benchmarks.scale.workload import Trace

__all__ = ["Answered", "Figures", "simulate"]

WARM = 0.2


@dataclass(frozen=True)
class Answered:
    """By question: when it arrived and was answered, in seconds, the tier in which its card was, and its worker."""

    arrived: NDArray[np.float64]
    answered: NDArray[np.float64]
    tiers: NDArray[np.int64]
    workers: NDArray[np.int64]

    def figures(self, warm: float = WARM) -> "Figures":
        """Without the first `warm` of the questions, in which caches and queues fill."""
        first = int(warm * len(self.arrived))
        seconds = (self.answered - self.arrived)[first:]
        start, end = self.arrived[first], self.arrived[-1]
        done = np.count_nonzero((self.answered > start) & (self.answered <= end))
        p50, p95, p99 = np.percentile(seconds, [50, 95, 99])
        loads = tuple(float(n) for n in np.bincount(self.tiers[first:], minlength=1) / len(seconds))
        return Figures(
            done / (end - start), float(seconds.mean()), float(p50), float(p95), float(p99), loads[0], loads
        )


@dataclass(frozen=True)
class Figures:
    """Questions a second; seconds of a question; the share of questions whose card was in memory, and in each tier."""

    throughput: float
    mean: float
    p50: float
    p95: float
    p99: float
    hits: float
    tiers: tuple[float, ...]

    def __str__(self) -> str:
        return "  ".join(f"{name} {value:.4g}" for name, value in asdict(self).items() if name != "tiers")


def simulate(
    trace: Trace,
    workers: Sequence[Worker],
    placement: Placement,
    clients: int | None = None,
    machine: int = 1,
    interference: float = 1.0,
) -> Answered:
    """Every question of the trace, from its arrival to its answer.

    clients       None: questions arrive at the times of the trace (open loop); else so many clients ask the next one
                  as soon as they have their answer (closed loop)
    machine       workers with neighbouring numbers that share a machine
    interference  how many times as long everything takes on a machine all of whose workers are busy; in between, linear
    """
    run = _Run(trace, workers, placement, machine, interference)
    if clients is None:
        for number, time in enumerate(trace.times.tolist()):
            run.until(time)
            run.ask(number, time)
        run.until(inf)
    else:
        asked = min(clients, len(trace.cards))
        for number in range(asked):
            run.ask(number, 0.0)
        while run.due() is not None:
            now, answered = run.step()
            for number in range(asked, min(asked + answered, len(trace.cards))):
                run.ask(number, now)
            asked += answered
    return Answered(run.arrived, run.answered, run.tiers, run.placed)


class _Run:
    def __init__(
        self, trace: Trace, workers: Sequence[Worker], placement: Placement, machine: int, interference: float
    ) -> None:
        self._cards: list[int] = trace.cards.tolist()
        self._workers, self._placement = workers, placement
        self._machine, self._interference = machine, interference
        self._load = np.zeros(len(workers), dtype=np.int64)
        self._events: list[tuple[float, int]] = []
        count = len(trace.cards)
        self.arrived, self.answered = np.zeros(count), np.zeros(count)
        self.tiers, self.placed = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)

    def ask(self, question: int, now: float) -> None:
        number = self._placement.choose(self._cards[question], self._load)
        self.arrived[question], self.placed[question] = now, number
        self._load[number] += 1
        self._workers[number].add(question, self._cards[question], now)
        self._changed(number, now, self._load[number] == 1)

    def until(self, time: float) -> None:
        """Everything that happens up to that time."""
        while (due := self.due()) is not None and due <= time:
            self.step()

    def due(self) -> float | None:
        """When the next event is; None where nothing is under way."""
        while self._events and self._workers[self._events[0][1]].next != self._events[0][0]:
            heapq.heappop(self._events)  # something else happened to that worker first
        return self._events[0][0] if self._events else None

    def step(self) -> tuple[float, int]:
        """The next event, which is due: when it was, and how many questions it answered."""
        now, number = heapq.heappop(self._events)
        answered = self._workers[number].advance(now)
        for question, tier in answered:
            self.answered[question], self.tiers[question] = now, tier
        self._load[number] -= len(answered)
        self._changed(number, now, bool(answered) and self._load[number] == 0)
        return now, len(answered)

    def _changed(self, number: int, now: float, flipped: bool) -> None:
        """Schedule the worker, and where it began or ceased to work, its neighbours anew."""
        numbers = range(number, number + 1)
        if flipped and self._machine > 1:
            start = number - number % self._machine
            numbers = range(start, min(start + self._machine, len(self._workers)))
            others = max(0, int((self._load[numbers.start : numbers.stop] > 0).sum()) - 1)
            factor = 1 + (self._interference - 1) * others / (self._machine - 1)
            for neighbour in numbers:
                self._workers[neighbour].slow(factor, now)
        for neighbour in numbers:
            if self._workers[neighbour].next < inf:
                heapq.heappush(self._events, (self._workers[neighbour].next, neighbour))
