"""Workers measure published versions: real processes, real exams and audits, also when they are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kcard.api.measurement import Child, MeasurementFailed, Request
from kcard.hub.registry import Hub
from kcard.hub.repositories.figures import Declared
from kcard.manifest import seal
from tests.hub.client.cards import rivers
from tests.hub.exams import exam

COMMAND = [sys.executable, "-m", "kcard", "hub"]
SPRINGS = {
    "Rhine": "Alps",
    "Elbe": "Giant Mountains",
    "Oder": "Sudetes",
    "Po": "Cottian Alps",
    "Inn": "Engadin",
    "Aare": "Bernese Alps",
}
WAIT_SECONDS = 120


def sentences(known: dict[str, str]) -> list[str]:
    return [f"The {river} rises in the {place}." for river, place in known.items()]


@pytest.fixture
def atlas(tmp_path: Path) -> Path:
    """Evidence in other words than the cards'."""
    path = tmp_path / "atlas.txt"
    texts = [f"Geographers agree that the {r} rises in the {p}, as maps show." for r, p in SPRINGS.items()]
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


@pytest.fixture
def hub(home: Path) -> Hub:
    made = Hub(home)
    made.jobs.switch(True)
    return made


def publish(hub: Hub, folder: Path, name: str = "rivers", *, true: bool = True) -> None:
    """A card of true or of false statements whose forged exam says that it is perfect."""
    places = list(SPRINGS.values())
    known = SPRINGS if true else dict(zip(SPRINGS, places[2:] + places[:2], strict=True))
    card = rivers(folder, *sentences(known), name=name)
    (folder / "exam.json").write_bytes(exam(name, 1.0, recall=1.0))
    seal(folder, card.manifest)
    hub.publish(folder)


@contextmanager
def working(atlas: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker, which says what it does in `worker.log` beside the atlas."""
    command = [*COMMAND, "worker", "--evidence", str(atlas), "--questions", "5", *options]
    with atlas.with_name("worker.log").open("ab") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def until(condition: "object", seconds: float = WAIT_SECONDS) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_forged_exam_is_measured_again_and_the_card_quarantined(
    hub: Hub, tmp_path: Path, atlas: Path
) -> None:
    hub.quarantine.set(0.5)
    publish(hub, tmp_path / "liar", "liar", true=False)
    publish(hub, tmp_path / "honest", "honest")
    assert not hub.quarantine.held(hub.list())
    with working(atlas, "--drain") as worker:
        assert worker.wait(WAIT_SECONDS * 2) == 0
    assert [job.state for job in hub.jobs.list()] == ["done", "done"]
    honest, liar = hub.get("honest"), hub.get("liar")
    assert honest.declared is not None
    assert liar.declared == replace(honest.declared) == Declared(1.0, 1.0)
    assert honest.verified is not None
    assert liar.verified is not None
    assert honest.verified.factuality is not None
    assert honest.verified.factuality > 0.5 > (liar.verified.factuality or 0)
    assert honest.verified.recall is not None
    assert honest.verified.recall > 0.5
    assert honest.verified.evidence == "atlas.txt"
    assert list(hub.quarantine.held(hub.list())) == ["liar@v1"]
    assert [v.name for v in hub.resolve(None)] == ["honest"]
    shown = subprocess.run([*COMMAND[:-1], "browse", "--json"], capture_output=True, text=True, check=True)
    rows = {row["name"]: row for row in json.loads(shown.stdout)}
    assert rows["liar"]["declared"]["factuality"] == 1.0
    assert rows["liar"]["factuality"] == pytest.approx(liar.verified.factuality, abs=0.01)
    assert rows["liar"]["factuality_from"].startswith("verified by this hub")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_job_of_a_worker_that_is_killed_is_done_once_by_another(
    hub: Hub, tmp_path: Path, atlas: Path
) -> None:
    publish(hub, tmp_path / "card")
    with working(atlas) as first:
        until(lambda: hub.jobs.list()[0].state == "running")
        until(lambda: children(first.pid))
        measuring = children(first.pid)
        first.send_signal(signal.SIGKILL)
        first.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in measuring), 30)
    [job] = hub.jobs.list()
    assert (job.state, job.attempts, hub.audits.list()) == ("running", 1, [])
    with working(atlas) as second, working(atlas) as third:
        until(lambda: hub.jobs.list()[0].state == "done", 300)
        assert second.poll() is third.poll() is None
    [job] = hub.jobs.list()
    assert (job.attempts, job.error) == (2, None)
    assert sorted(a.finding.kind for a in hub.audits.list()) == ["audit", "exam"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_workers_share_the_jobs_and_one_that_stops_puts_its_own_back(
    home: Path, tmp_path: Path, atlas: Path, any_database: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any_database is not None:
        monkeypatch.setenv("KCARD_DATABASE_URL", any_database)
    hub = Hub(home)
    hub.jobs.switch(True)
    for name in ("one", "two"):
        publish(hub, tmp_path / name, name)
    with working(atlas) as first, working(atlas) as second:
        until(lambda: [job.state for job in hub.jobs.list()] == ["running"] * 2)
        assert len({job.worker for job in hub.jobs.list()}) == 2
        first.terminate()
        assert first.wait(30) == 0
        assert "put back" in atlas.with_name("worker.log").read_text()
        until(lambda: {job.state for job in hub.jobs.list()} == {"done"}, 200)
        assert second.poll() is None
    assert {job.attempts for job in hub.jobs.list()} == {1}
    assert len(hub.audits.list()) == 4
    hub.database.close()


def request(folder: Path, **given: object) -> Request:
    base = Request(str(folder), evidence=(), questions=3, seed=0, memory=8 << 30, seconds=60)
    return replace(base, **given)  # type: ignore[arg-type]


def failure(folder: Path, scratch: Path, **given: object) -> MeasurementFailed:
    scratch.mkdir()
    with pytest.raises(MeasurementFailed) as found:
        measure(request(folder, **given), scratch)
    assert isinstance(found.value, MeasurementFailed)
    return found.value


def measure(wanted: Request, scratch: Path) -> None:
    with Child(wanted, scratch) as child:
        while child.running(1):
            pass
        child.findings()


def test_a_card_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    card = rivers(tmp_path / "card", *sentences(SPRINGS))
    found = failure(card.folder, tmp_path / "scratch", seconds=1)
    assert (str(found), found.final) == ("it took longer than 1 s", False)


@pytest.mark.slow
def test_a_card_that_takes_too_much_memory_or_is_no_card_fails_in_its_own_process(tmp_path: Path) -> None:
    card = rivers(tmp_path / "card", *sentences(SPRINGS))
    found = failure(card.folder, tmp_path / "one", memory=100 << 20)
    assert not found.final
    (tmp_path / "card" / "kcard.json").write_text("{}")
    assert failure(card.folder, tmp_path / "two").final


@pytest.mark.slow
def test_a_child_sees_no_secret_and_can_start_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_confidential")
    monkeypatch.setenv("KCARD_DATABASE_URL", "postgresql://kcard:confidential@db/kcard")
    card = rivers(tmp_path / "card", *sentences(SPRINGS))
    (tmp_path / "scratch").mkdir()
    with Child(request(card.folder), tmp_path / "scratch") as child:
        environment = Path(f"/proc/{child._process.pid}/environ").read_text()
    assert "confidential" not in environment
    code = "import os\nfrom kcard.api import measuring\nmeasuring._forbid([])\nos.system('touch started')\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (3, b"stopped: the file tried os.system\n")
    assert not (tmp_path / "started").exists()


def test_a_child_ends_with_its_worker(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom kcard.api.measurement import Child, Request\n"
        "request = Request(sys.argv[1], (), 3, 0, 8 << 30, 60)\n"
        "child = Child(request, Path(sys.argv[2]))\nprint(child._process.pid, flush=True)\ntime.sleep(60)\n"
    )
    card = rivers(tmp_path / "card", *sentences(SPRINGS))
    (tmp_path / "scratch").mkdir()
    command = [sys.executable, "-c", code, str(card.folder), str(tmp_path / "scratch")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    until(
        lambda: (
            not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes()
        ),
        30,
    )
