"""Pieces on a Ray cluster. Ray does a piece again whose worker or node is lost; exceptions are outcomes."""

import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kcard import __version__
from kcard.bulk.options import RayOptions
from kcard.bulk.piece import Outcome, Piece, perform
from kcard.bulk.ray_address import check_reachable, is_up
from kcard.config import for_other_machines, let_threads_sleep, without_usage_statistics
from kcard.errors import ClusterError, MissingExtra, first_line, one_line

__all__ = ["RayCluster", "ray_cluster"]

POLL_SECONDS = 5.0
LOST_SECONDS = 30.0  # after which a cluster that can do nothing is given up
OBJECTS = 100 << 20  # bytes of Ray's object store where it is started here; results are small
AHEAD = 2  # pieces in flight for each that can run at a time


@dataclass(frozen=True)
class RayCluster:
    """A Mapper on a cluster that this process is connected to; see ray_cluster.

    cpus, gpus  what each piece needs
    retries     how often a piece is done again after its worker or node was lost
    reuse       whether a worker does several pieces, and keeps the models that it has loaded
    """

    address: str
    cpus: float
    gpus: float
    retries: int
    reuse: bool

    def map(self, pieces: Sequence[Piece]) -> Generator[Outcome, None, None]:
        """Raises ClusterError where the cluster is lost, or no node of it can do a piece."""
        import ray

        done = ray.remote(
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            max_retries=self.retries,
            max_calls=0 if self.reuse else 1,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": for_other_machines()},
        )(_perform)
        watch, slots, folder = _Watch(self), self.slots(), str(Path.cwd())
        todo, pending = deque(pieces), dict[Any, Piece]()
        try:
            while todo or pending:
                while todo and len(pending) < AHEAD * slots:
                    piece = todo.popleft()
                    pending[done.remote(piece, folder, __version__)] = piece
                ready = ray.wait([*pending], timeout=POLL_SECONDS)[0] if pending else []
                for ref in ready:
                    yield self._outcome(ref, pending.pop(ref))
                slots = watch.slots()
        finally:
            for ref in pending:
                ray.cancel(ref, force=True)

    def slots(self) -> int:
        """How many pieces the nodes that are alive can do at a time."""
        import ray

        return sum(self._fitting(node["Resources"]) for node in ray.nodes() if node["Alive"])

    def _fitting(self, resources: Mapping[str, float]) -> int:
        by_cpu = math.floor(resources.get("CPU", 0) / self.cpus)
        return min(by_cpu, math.floor(resources.get("GPU", 0) / self.gpus)) if self.gpus else by_cpu

    def _outcome(self, ref: Any, piece: Piece) -> Outcome:
        import ray

        try:
            found: Outcome = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            return Outcome(piece.key, error=one_line(error.cause or error))
        except ray.exceptions.RayError as error:
            tried = f", after {self.retries} retries" if self.retries else ""
            return Outcome(piece.key, error=f"its worker was lost{tried}: {first_line(error)}")
        return found


class _Watch:
    """Looks whether a cluster is there, so that Ray is not asked about one that is not."""

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._lost_since: float | None = None

    def slots(self) -> int:
        """The cluster's slots. Raises ClusterError after LOST_SECONDS without any."""
        up = is_up(self._cluster.address)  # else Ray would wait for a minute and then end this process
        if found := self._cluster.slots() if up else 0:
            self._lost_since = None
            return found
        now = time.monotonic()
        self._lost_since = now if self._lost_since is None else self._lost_since
        if now - self._lost_since > LOST_SECONDS:
            why = "no node is left that can do the work" if up else "its head does not answer"
            raise ClusterError(
                f"the Ray cluster {self._cluster.address} is lost: {why}; what is done is kept"
            )
        time.sleep(1)
        return 0


@contextmanager
def ray_cluster(options: RayOptions, gpus: float, *, reuse: bool) -> Iterator[RayCluster]:
    """Connect to the cluster that the options name; a program that is connected already stays so.

    gpus, reuse  see RayCluster

    Raises MissingExtra without the extra `ray`, and ClusterError where there is no such cluster, or no node of it has
    what a piece needs.
    """
    if find_spec("ray") is None:
        raise MissingExtra("--ray needs ray: pip install 'kcard[ray]'")
    without_usage_statistics()
    import ray

    ours = not ray.is_initialized()
    if ours:
        _connect(options.ray or "auto")
    try:
        address = ray.get_runtime_context().gcs_address
        cluster = RayCluster(address, options.ray_cpus, gpus, options.ray_retries, reuse)
        if not cluster.slots():
            wanted = f"{cluster.cpus:g} CPU cores" + (f" and {gpus:g} GPUs" if gpus else "")
            raise ClusterError(
                f"no node of the Ray cluster {address} has {wanted}: lower --ray-cpus or --ray-gpus, or add nodes"
            )
        with redirect_stdout(sys.stderr):  # where Ray says which workers it lost; stdout is for data
            yield cluster
    finally:
        if ours:
            ray.shutdown()


def _connect(address: str) -> None:
    import ray

    here: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECTS}
    if address not in {"auto", "local"}:
        check_reachable(address)
    try:
        ray.init(
            address, log_to_driver=False, logging_level=logging.ERROR, **(here if address == "local" else {})
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(f"--ray {address}: {first_line(error)}") from error


def _perform(piece: Piece, folder: str, version: str) -> Outcome:
    """Do a piece on a worker, in the folder of the command, so that relative paths mean the same."""
    if version != __version__:
        return Outcome(
            piece.key, error=f"the worker has kcard {__version__}, not {version}: install the same"
        )
    let_threads_sleep()
    with suppress(OSError):
        os.chdir(folder)
    return perform(piece)
