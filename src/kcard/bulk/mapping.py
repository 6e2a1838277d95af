"""Does pieces with the workers that the options name, keeping each outcome in a journal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from kcard.bulk.journal import Journal
from kcard.bulk.options import RayOptions
from kcard.bulk.piece import Mapper, Outcome, Piece

__all__ = ["device_there", "mapped", "workers"]


@contextmanager
def workers(cluster: RayOptions | None, device: str = "cpu", *, reuse: bool = False) -> Iterator[Mapper]:
    """Child processes of this one, or the workers of a Ray cluster.

    device  of the models
    reuse   whether a worker of the cluster does several pieces, and keeps the models that it has loaded

    Raises what ray_cluster raises.
    """
    if cluster is None or cluster.ray is None:
        from kcard.bulk.children import ChildProcesses

        yield ChildProcesses()
    else:
        from kcard.bulk.ray_cluster import ray_cluster

        with ray_cluster(cluster, cluster.gpus(device), reuse=reuse) as found:
            yield found


def device_there(cluster: RayOptions | None, device: str) -> str:
    """The device as a worker of the cluster sees it: Ray shows a piece only its own GPUs."""
    there = cluster is not None and cluster.ray is not None and device.startswith("cuda")
    return "cuda" if there else device


def mapped(
    pieces: Sequence[Piece],
    mapper: Mapper,
    journal: Journal | None,
    checked: Callable[[Outcome], Outcome] = lambda outcome: outcome,
) -> Iterator[Outcome]:
    """The outcome of each piece: first those that the journal holds, then each as soon as it is there and kept.

    checked  what to make of an outcome before it is kept
    """
    done = {} if journal is None else dict(journal.done)
    yield from done.values()
    with closing(mapper.map([piece for piece in pieces if piece.key not in done])) as outcomes:
        for outcome in map(checked, outcomes):
            if journal is not None:
                journal.add(outcome)
            yield outcome
