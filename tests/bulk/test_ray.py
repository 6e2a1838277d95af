"""Pieces on a Ray cluster: workers and nodes come and go, nothing is lost or doubled."""

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcard import __version__
from kcard.bulk import ray_address
from kcard.bulk import ray_cluster as module
from kcard.bulk.children import ChildProcesses
from kcard.bulk.options import RayOptions
from kcard.bulk.piece import Outcome, Piece
from kcard.bulk.ray_cluster import ray_cluster
from kcard.config import settings
from kcard.errors import ClusterError, KcardError
from tests.bulk.pieces import MODULE, begun, squares
from tests.bulk.ray_nodes import NODE, ray_folder, ray_nodes

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with ray_nodes(2) as cluster:
        yield cluster


def on(nodes: Any, retries: int = 3) -> RayOptions:
    return RayOptions(ray=nodes.address, ray_retries=retries)


@pytest.mark.slow
def test_a_killed_worker_and_a_lost_node_cost_nothing(nodes: Any, tmp_path: Path) -> None:
    pieces = squares(12, tmp_path, seconds=0.5)
    third = nodes.add_node(**NODE)
    found: list[Outcome] = []
    with ray_cluster(on(nodes), 0, reuse=True) as cluster:
        for outcome in cluster.map(pieces):
            found.append(outcome)
            if len(found) == 2:
                os.kill(last_begun(tmp_path, pieces), signal.SIGKILL)
            if len(found) == 4:
                nodes.remove_node(third, allow_graceful=False)
    assert Counter(outcome.key for outcome in found) == Counter(piece.key for piece in pieces)
    expected = [Outcome(piece.key, {"n": n, "square": n * n}) for n, piece in enumerate(pieces)]
    assert sorted(found, key=lambda outcome: outcome.result["n"]) == expected
    assert sum(len(begun(tmp_path, piece.key)) for piece in pieces) > len(pieces)


def last_begun(folder: Path, pieces: list[Piece]) -> int:
    running = max(folder.glob("*.begun"), key=lambda path: path.stat().st_mtime)
    assert running.stem in {piece.key for piece in pieces}
    return int(running.read_text(encoding="utf-8").split()[-1])


@pytest.mark.slow
def test_a_piece_that_kills_every_worker_fails_alone(nodes: Any, tmp_path: Path) -> None:
    first, last = squares(2, tmp_path)
    dying = Piece("dying", f"{MODULE}:dies", {"folder": str(tmp_path), "times": 100})
    bad = Piece("bad", f"{MODULE}:fails", {"kind": "usage"})
    with ray_cluster(on(nodes, retries=1), 0, reuse=True) as cluster:
        found = {outcome.key: outcome for outcome in cluster.map([first, dying, bad, last])}
    assert found["dying"].error.startswith("its worker was lost, after 1 retries: ")
    assert len(begun(tmp_path, "dies")) == 2
    assert found["bad"].error == "the corpus is empty: give another"
    assert (found["square 0"].result["square"], found["square 1"].result["square"]) == (0, 1)


@pytest.mark.slow
def test_workers_have_the_settings_and_the_folder_but_no_secret(
    nodes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("KCARD_DATABASE_URL", "postgresql://me:secret@host/hub")
    monkeypatch.setenv("KCARD_LLM", "openai:gpt")
    monkeypatch.setenv("KCARD_LLM_URL", "http://127.0.0.1:9/v1")
    monkeypatch.chdir(tmp_path)
    names = ["KCARD_HOME", "KCARD_LLM", "KCARD_LLM_URL", "KCARD_DATABASE_URL", "OPENAI_API_KEY"]
    with ray_cluster(on(nodes), 0, reuse=True) as cluster:
        (found,) = cluster.map([Piece("seen", f"{MODULE}:seen", {"names": names})])
    assert found.result == {
        "folder": str(tmp_path),
        "KCARD_HOME": str(settings().home),
        "KCARD_LLM": "openai:gpt",
        "KCARD_LLM_URL": "http://127.0.0.1:9/v1",
        "KCARD_DATABASE_URL": None,
        "OPENAI_API_KEY": None,
    }


@pytest.mark.slow
def test_closing_stops_what_is_running(nodes: Any, tmp_path: Path) -> None:
    with ray_cluster(on(nodes), 0, reuse=True) as cluster:
        outcomes = cluster.map([*squares(1, tmp_path), *squares(8, tmp_path, seconds=600)[1:]])
        assert next(outcomes).key == "square 0"
        started = time.monotonic()
        outcomes.close()
    assert time.monotonic() - started < 20
    left = {process for path in tmp_path.glob("*.begun") for process in begun(tmp_path, path.stem)}
    deadline = time.monotonic() + 20
    while any(alive(process) for process in left) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(alive(process) for process in left)


def alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def refused(options: RayOptions, gpus: float = 0) -> str:
    """Why there is no cluster for these options."""
    with pytest.raises(KcardError) as raised, ray_cluster(options, gpus, reuse=True):
        pass
    return str(raised.value)


@pytest.mark.slow
def test_more_than_any_node_has_is_refused_at_once(nodes: Any) -> None:
    assert "has 64 CPU cores: lower --ray-cpus" in refused(RayOptions(ray=nodes.address, ray_cpus=64))
    assert "has 1 CPU cores and 1 GPUs" in refused(on(nodes), gpus=1)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_cluster_that_loses_its_nodes_is_given_up(tmp_path: Path) -> None:
    with ray_nodes(1) as nodes, ray_cluster(on(nodes), 0, reuse=True) as cluster:
        outcomes = cluster.map([*squares(1, tmp_path), *squares(4, tmp_path, seconds=600)[1:]])
        next(outcomes)
        (worker,) = nodes.worker_nodes
        nodes.remove_node(worker, allow_graceful=False)
        with pytest.raises(ClusterError, match="no node is left that can do the work"):
            list(outcomes)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_cluster_that_loses_its_head_is_given_up_while_this_process_lives_on(tmp_path: Path) -> None:
    with ray_nodes(1) as nodes, ray_cluster(on(nodes), 0, reuse=True) as cluster:
        outcomes = cluster.map([*squares(1, tmp_path), *squares(4, tmp_path, seconds=600)[1:]])
        next(outcomes)
        nodes.head_node.kill_gcs_server()
        started = time.monotonic()
        with pytest.raises(ClusterError, match="its head does not answer; what is done is kept"):
            list(outcomes)
    assert time.monotonic() - started < 30


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOST_SECONDS", 3.0)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.5)


def test_a_wrong_address_fails_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_address, "SECONDS", 0.5)
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = RayOptions(ray=f"127.0.0.1:{silent.getsockname()[1]}")
        assert refused(options) == f"--ray {options.ray}: what listens there is not the head of a Ray cluster"
    assert refused(options).startswith(f"--ray {options.ray}: nothing can be reached there (")
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("address", ["nonsense", "ray://host:10001", "host:", ":6379"])
def test_what_is_no_address_is_refused(address: str) -> None:
    assert "expected HOST:PORT" in refused(RayOptions(ray=address))


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert refused(RayOptions(ray="auto")) == "--ray needs ray: pip install 'kcard[ray]'"


def test_a_worker_with_another_version_says_so() -> None:
    piece = squares(1, Path())[0]
    assert module._perform(piece, "/", "0.0.1").error == (
        f"the worker has kcard {__version__}, not 0.0.1: install the same"
    )


def test_a_cluster_of_ones_own_gives_what_child_processes_give(tmp_path: Path) -> None:
    pieces = squares(2, tmp_path)
    with ray_folder(), ray_cluster(RayOptions(ray="local"), 0, reuse=False) as cluster:
        found = sorted(cluster.map(pieces), key=lambda outcome: outcome.key)
    assert found == [*ChildProcesses().map(pieces)]
