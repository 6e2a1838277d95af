"""A Ray cluster of nodes on this machine, small enough for tests."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kcard.config import without_usage_statistics

__all__ = ["NODE", "kill_a_worker", "ray_folder", "ray_nodes"]

NODE: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80 << 20}


@contextmanager
def ray_folder() -> Iterator[None]:
    """Have Ray keep its logs and sockets in a folder that is deleted when the block ends; a short path, for sockets."""
    before = os.environ.get("RAY_TMPDIR")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("RAY_TMPDIR")
            if before is not None:
                os.environ["RAY_TMPDIR"] = before


@contextmanager
def ray_nodes(count: int) -> Iterator[Any]:
    """A ray.cluster_utils.Cluster whose head does no work itself; it is stopped when the block ends."""
    without_usage_statistics()
    import ray
    from ray.cluster_utils import Cluster

    head = {**NODE, "num_cpus": 0, "include_dashboard": False}
    with ray_folder():
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(count):
                cluster.add_node(**NODE)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def kill_a_worker(cluster: Any) -> None:
    """Kill -9 a worker of the cluster: one that is at work on a piece, if there is one."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()}
    found: dict[str, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            name = (process / "cmdline").read_text().partition("\0")[0]
            if parent in raylets and name.startswith("ray::"):
                found[name] = int(process.name)
    os.kill(found.get("ray::_perform") or found["ray::IDLE"], signal.SIGKILL)
