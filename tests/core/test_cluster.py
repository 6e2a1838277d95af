"""Bulk work: a piece that fails costs itself, what is done is not done again, and Ray gives what this process gives."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kcard import cluster as module
from kcard.cluster import RayOptions, complete_rows, json_ready, mapped
from kcard.config import settings
from kcard.errors import KcardError, TrainingInterrupted, UsageError
from kcard.events import ignore
from kcard.io import Row
from tests.core.work import do, seen

LOCAL = RayOptions(ray="local")


def rows(folder: Path, **how: str) -> list[Row]:
    return [{"card": card, "folder": str(folder), "how": message} for card, message in how.items()]


def complete(
    work: list[Row], path: Path, resume: bool = False, cluster: RayOptions | None = None
) -> dict[str, Any]:
    """What the rows came to, by card."""
    defaults: dict[str, Any] = {"on_event": ignore, "check": lambda _: None, "device": "cpu"}
    outcomes = complete_rows(do, work, path, resume=resume, cluster=cluster, **defaults)
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == list(outcomes)
    return {row["card"]: row.get("length", row.get("error")) for row in outcomes}


def begun(folder: Path) -> dict[str, int]:
    """How often each piece was begun."""
    return {path.stem: len(path.read_text("utf-8").splitlines()) for path in sorted(folder.glob("*.begun"))}


def test_a_piece_that_fails_costs_itself_and_is_done_again_when_resumed(tmp_path: Path) -> None:
    work, path = rows(tmp_path, moons="", bad="fails", bug="bug", sun=""), tmp_path / "deep" / "out.jsonl"
    expected = {
        "moons": 5,
        "bad": "the corpus is empty: give another",
        "bug": "ZeroDivisionError: a bug",
        "sun": 3,
    }
    assert complete(work, path) == expected
    with pytest.raises(UsageError, match="already exists: add --resume"):
        complete(work, path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[3] + lines[0][:20])  # as they came, when the run was killed
    assert complete(work, path, resume=True) == expected
    assert begun(tmp_path) == {"bad": 2, "bug": 2, "moons": 2, "sun": 1}
    with pytest.raises(UsageError, match="line 1 was made from other input or options"):
        complete(rows(tmp_path, moons="other"), path, resume=True)


def test_an_interruption_ends_the_work_and_leaves_what_is_done(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(TrainingInterrupted):
        complete(rows(tmp_path, moons="", sun="stops", winds=""), path)
    assert [json.loads(line)["card"] for line in path.read_text(encoding="utf-8").splitlines()] == ["moons"]


def test_what_json_does_not_have_can_not_be_handed_on() -> None:
    assert json_ready({"corpus": Path("a"), "cards": ("b",)}) == {"corpus": "a", "cards": ["b"]}
    with pytest.raises(UsageError, match="is an object, which can't be sent"):
        json_ready({"llm": print})


def refused(options: RayOptions) -> str:
    with pytest.raises(KcardError) as raised:
        list(mapped(do, [{}], options, "cpu"))
    return str(raised.value)


def test_a_wrong_address_fails_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(module, "MAX_ANSWER_SECONDS", 0.5)
    for address in ("nonsense", "ray://host:10001", "host:", ":6379"):
        assert "expected HOST:PORT" in refused(RayOptions(ray=address))
    started = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert refused(RayOptions(ray=address)).startswith(f"--ray {address}: no answer (timed out")
    assert refused(RayOptions(ray=address)).startswith(f"--ray {address}: no answer (")
    assert time.monotonic() - started < 30


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert refused(LOCAL) == "--ray needs ray: pip install 'kcard[ray]'"


def test_a_worker_with_another_version_says_so() -> None:
    (line,) = module._Worker(do, str(Path.cwd()), "0.0.1")({"item": ["[7, {}]"]})["item"]
    assert json.loads(line) == [7, {"error": "the worker has kcard 0.1.0, not 0.0.1: install the same"}]


@pytest.fixture(scope="module")
def ray_folder() -> Iterator[None]:
    """Ray keeps logs and sockets in a folder that is deleted in the end; a short path, for sockets."""
    pytest.importorskip("ray")
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_TMPDIR", folder)
        yield


@pytest.mark.usefixtures("ray_folder")
def test_workers_of_ray_do_what_this_process_does_and_print_and_report_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # where the workers, too, find this file
    monkeypatch.chdir(tmp_path)
    pieces = [{"names": ["KCARD_HOME", name]} for name in ("RAY_USAGE_STATS_ENABLED", "KCARD_LLM")]
    there = dict(mapped(seen, pieces, LOCAL, "cpu"))
    common = {"folder": str(tmp_path), "KCARD_HOME": str(settings().home)}
    assert there == {
        0: {"result": {**common, "RAY_USAGE_STATS_ENABLED": "0"}},
        1: {"result": {**common, "KCARD_LLM": "embedded"}},
    }
    assert capfd.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.usefixtures("ray_folder")
def test_a_lost_worker_is_replaced_and_a_piece_that_ends_every_worker_fails_alone(tmp_path: Path) -> None:
    work = rows(tmp_path, moons="", once="dies once", never="dies", bad="fails", sun="")
    outcomes = complete(work, tmp_path / "out.jsonl", cluster=LOCAL)
    assert outcomes.pop("never") == "its worker was lost 4 times, perhaps because memory ran out"
    assert outcomes == {"moons": 5, "once": 4, "bad": "the corpus is empty: give another", "sun": 3}
    assert begun(tmp_path) == {"bad": 1, "moons": 1, "never": 4, "once": 2, "sun": 1}


@pytest.mark.slow
@pytest.mark.usefixtures("ray_folder")
def test_ctrl_c_ends_the_workers_within_seconds(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from tests.core.test_cluster import *\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "complete(rows(folder, moons='', long='lasts', more='lasts'), folder / 'out.jsonl', cluster=LOCAL)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, start_new_session=True
    ) as command:
        deadline = time.monotonic() + 60
        while "long" not in begun(tmp_path) or not (tmp_path / "out.jsonl").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(command.pid, signal.SIGINT)
        assert b"KeyboardInterrupt" in command.communicate(timeout=30)[1]
    worker = Path("/proc") / (tmp_path / "long.begun").read_text(encoding="utf-8").strip()
    while worker.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not worker.exists()
    assert len((tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("ray_folder")
def test_more_than_any_node_has_is_refused_at_once() -> None:
    assert "has 640 CPU cores: lower --ray-cpus" in refused(RayOptions(ray="local", ray_cpus=640))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_folder")
def test_a_lost_node_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80 << 20}
    nodes = Cluster(initialize_head=True, head_node_args={**node, "num_cpus": 0, "include_dashboard": False})
    try:
        nodes.add_node(**node)
        second = nodes.add_node(**node)
        work = rows(tmp_path, **{f"card{n}": "takes a second" for n in range(12)})
        outcomes = {}
        for number, outcome in mapped(do, work, RayOptions(ray=nodes.address), "cpu"):
            outcomes[number] = outcome
            if len(outcomes) == 2:
                nodes.remove_node(second, allow_graceful=False)
        assert outcomes == {n: {"result": {"length": len(row["card"])}} for n, row in enumerate(work)}
    finally:
        nodes.shutdown()
