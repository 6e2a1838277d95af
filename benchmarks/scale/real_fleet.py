"""Real workers and the dispatcher that sends them the questions of a trace."""

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

import numpy as np

from benchmarks.scale.placement import Placement
from benchmarks.scale.real_worker import Batch, Setting, work
from benchmarks.scale.workload import Trace

__all__ = ["Fleet", "Run", "started"]


class Run(NamedTuple):
    """`arrived`: when each question was sent, in seconds (time.monotonic); `batches`: by worker."""

    arrived: Sequence[float]
    batches: Sequence[Sequence[Batch]]


@contextmanager
def started(setting: Setting, workers: int) -> Iterator["Fleet"]:
    """Workers that have opened every card, each on a core of its own as far as there are cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None]
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(workers)]
    processes = [
        context.Process(target=work, args=(far, setting, cores[number % len(cores)]), daemon=True)
        for number, (_, far) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    try:
        for near, _ in pipes:
            assert near.recv() == "ready"
        yield Fleet([near for near, _ in pipes])
        for near, _ in pipes:
            near.send(None)
        for process in processes:
            process.join(10)
    finally:
        for process in processes:
            process.terminate()


class Fleet:
    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections

    def run(self, trace: Trace, placement: Placement, clients: int | None = None) -> Run:
        """Ask every question of the trace: at its time, or where there are `clients`, each asks the next one as soon
        as it has its answer. Returns when all are answered."""
        count = len(trace.cards)
        load = np.zeros(len(self._connections), dtype=np.int64)
        arrived = [0.0] * count
        batches: list[list[Batch]] = [[] for _ in self._connections]
        begin, sent, answered = time.monotonic(), 0, 0
        while answered < count:
            now = time.monotonic()
            while sent < count and (
                sent - answered < clients if clients is not None else begin + trace.times[sent] <= now
            ):
                card = int(trace.cards[sent])
                worker = placement.choose(card, load)
                load[worker] += 1
                # An open loop counts from the time that the trace says, however late the dispatcher is.
                arrived[sent] = now if clients is not None else begin + float(trace.times[sent])
                self._connections[worker].send((sent, card))
                sent += 1
            due = None if clients is not None or sent == count else begin + trace.times[sent]
            timeout = None if due is None else max(0.0, due - time.monotonic())
            for connection in wait(self._connections, timeout):
                assert isinstance(connection, Connection)
                batch = connection.recv()
                worker = self._connections.index(connection)
                batches[worker].append(batch)
                load[worker] -= len(batch.questions)
                answered += len(batch.questions)
        return Run(arrived, batches)
