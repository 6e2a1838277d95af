"""Verified results: an operator's client measures what nobody measured, each card in a process with limits."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import kcard
from kcard.api.audit_hub import AuditRequest, audit_unverified, measure_card
from kcard.api.hub import credentials
from kcard.errors import CardError, HubError, UsageError
from kcard.hub.audits import AuditFinding
from tests.fakes import counts_to
from tests.hub.client.cards import rivers
from tests.hub.shared_hub import Shared, shared_hub

SPRINGS = {
    "Rhine": "Alps",
    "Elbe": "Giant Mountains",
    "Oder": "Sudetes",
    "Po": "Cottian Alps",
    "Inn": "Engadin",
    "Aare": "Bernese Alps",
}
SENTENCES = tuple(f"The {river} rises in the {place}." for river, place in SPRINGS.items())
FINDING = AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, 0.8, 0.7, "{}")


@pytest.fixture
def shared(tmp_path: Path, home: Path) -> Iterator[Shared]:
    """A hub with a card, and one of which no question can be made; the operator is logged in."""
    del home
    with shared_hub(tmp_path / "hub") as shared:
        shared.hub.registry.publish(rivers(tmp_path / "rivers", *SENTENCES).folder)
        shared.hub.registry.publish(rivers(tmp_path / "words", "Hm!", name="words").folder)
        credentials().store(shared.url, shared.tokens["ada:admin"])
        yield shared


@pytest.fixture
def atlas(tmp_path: Path) -> Path:
    """Evidence in other words than the card's."""
    path = tmp_path / "atlas.txt"
    texts = [f"Geographers agree that the {r} rises in the {p}, as maps show." for r, p in SPRINGS.items()]
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


@pytest.mark.timeout(300)
def test_versions_without_a_result_are_measured_and_a_broken_one_stops_none(
    shared: Shared, atlas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "randbelow", lambda _: 0)  # the seed of the questions
    done: list[tuple[int, int | None]] = []
    outcomes = list(
        audit_unverified(shared.url, evidence=[str(atlas)], questions=3, on_event=counts_to(done))
    )
    rivers_, words = sorted(outcomes, key=lambda outcome: outcome.reference)
    assert rivers_.reference == "library/rivers@v1"
    assert rivers_.recall is not None
    assert rivers_.recall > 0.5
    assert rivers_.factuality is not None
    assert rivers_.factuality > 0.5
    assert (words.reference, words.recall) == ("library/words@v1", None)
    assert "question" in (words.error or "")
    assert done == [(0, 2), (1, 2), (2, 2)]
    exam, audit = shared.hub.registry.audits.list()
    assert (exam.author, exam.finding.kind, exam.finding.kcard) == ("ada", "exam", kcard.__version__)
    assert (audit.author, audit.finding.kind, audit.finding.kcard) == ("ada", "audit", kcard.__version__)
    assert audit.finding.evidence == "atlas.txt"
    verified = shared.http().get("/api/models/library/rivers").json()["kcard"]["verified"]
    assert verified["factuality"] == rivers_.factuality
    assert (verified["by"], verified["kcard"]) == ("ada", kcard.__version__)
    rest = shared.http("ada:admin").get("/api/kcard/unverified").json()["versions"]
    assert [row["repository"] for row in rest] == ["library/words"]


def test_what_is_wrong_is_said_before_anything_is_measured(shared: Shared) -> None:
    with pytest.raises(UsageError, match="evidence 'nowhere' does not exist"):
        list(audit_unverified(shared.url, evidence=["nowhere"]))
    credentials().store(shared.url, shared.tokens["bob:admin"])
    with pytest.raises(HubError, match="refused"):
        list(audit_unverified(shared.url))


def test_results_are_listed_and_stored_for_administrators_of_the_hub_only(shared: Shared) -> None:
    version = shared.hub.registry.get("rivers")
    body = {"repository": "library/rivers", "version": version.sha256, "findings": [asdict(FINDING)]}
    for who, status in ((None, 401), ("bob:admin", 403), ("ada", 403)):
        assert shared.http(who).get("/api/kcard/unverified").status_code == status
        assert shared.http(who).post("/api/kcard/audits", json=body).status_code == status
    operator = shared.http("ada:admin")
    page = operator.get("/api/kcard/unverified?limit=1").json()
    assert [row["repository"] for row in page["versions"]] == ["library/rivers"]
    assert page["versions"][0]["version"] == version.sha256
    page = operator.get(f"/api/kcard/unverified?limit=1&after={page['next']}").json()
    assert [row["repository"] for row in page["versions"]] == ["library/words"]
    for bad in ({"version": "ab" * 32}, {"repository": "bob/none"}):
        assert operator.post("/api/kcard/audits", json=body | bad).status_code == 404
    for wrong in ({"factuality": 2}, {"record": "\0"}, {"kind": "appeal"}, {"queries_sha256": "x"}):
        findings = [asdict(FINDING) | wrong]
        assert operator.post("/api/kcard/audits", json=body | {"findings": findings}).status_code == 400
    assert shared.hub.registry.audits.list() == []
    assert operator.post("/api/kcard/audits", json=body).json() == {"reference": "library/rivers@v1"}
    large = [asdict(replace(FINDING, record="x" * (3 << 20)))]
    assert operator.post("/api/kcard/audits", json=body | {"findings": large}).status_code == 200
    stored = shared.hub.registry.audits.list()
    assert [each.author for each in stored] == ["ada", "ada"]


def gone(pid: int, seconds: float = 30) -> bool:
    """Whether a process ends, which nobody may wait for."""
    path, deadline = Path(f"/proc/{pid}/cmdline"), time.monotonic() + seconds
    while path.exists() and path.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not path.exists() or not path.read_bytes()


def request(folder: Path, **changes: object) -> AuditRequest:
    base = AuditRequest(str(folder), evidence=(), questions=3, seed=0, memory=8 << 30, seconds=60)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_card_that_takes_too_long_or_too_much_memory_is_stopped(tmp_path: Path) -> None:
    card = rivers(tmp_path / "card", *SENTENCES)
    with pytest.raises(CardError, match="it took longer than 1 s"):
        measure_card(request(card.folder, seconds=1))
    with pytest.raises(CardError, match=r"its process ended with \w+ \d+ \(\S"):
        measure_card(request(card.folder, memory=100 << 20))


def test_a_child_can_start_no_program_and_ends_with_its_parent(tmp_path: Path) -> None:
    card = rivers(tmp_path / "card", *SENTENCES)
    code = (
        "import sys\nfrom kcard.api import audit_hub\n"
        "plain = audit_hub.subprocess.Popen\n"
        "class Told(plain):\n"
        "    def __init__(self, *a, **k):\n        super().__init__(*a, **k)\n        print(self.pid, flush=True)\n"
        "audit_hub.subprocess.Popen = Told\n"
        "audit_hub.measure_card(audit_hub.AuditRequest(sys.argv[1], (), 3, 0, 8 << 30, 60))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(card.folder)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(parent.pid, signal.SIGKILL)
    assert gone(child)


@pytest.mark.timeout(120)
def test_ctrl_c_ends_the_command_and_its_child(shared: Shared) -> None:
    command = [sys.executable, "-m", "kcard", "audit", "--unverified", "--hub", shared.url]
    with subprocess.Popen(
        command,
        env={**os.environ, "HF_HUB_OFFLINE": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 60
        while not (pids := children.read_text().split()):
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline, "no child was started"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert gone(int(pids[0]))
    assert shared.hub.registry.audits.list() == []
