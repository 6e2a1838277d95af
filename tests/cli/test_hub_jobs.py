"""kcard hub worker, jobs, measure: as an operator types them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kcard.cli.main import app
from kcard.hub.registry import Hub
from kcard.hub.repositories.audits import AuditFinding
from tests.hub.client.cards import rivers


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    """A hub with two cards, one of them quarantined by an audit."""
    hub = Hub(home)
    for name in ("lakes", "rivers"):
        hub.publish(rivers(tmp_path / name, name=name).folder)
    hub.quarantine.set(0.5)
    found = AuditFinding("minilm", None, "atlas", None, "own", "cd" * 32, 0, 1.0, 0.3, "{}")
    hub.audits.add(hub.get("rivers"), found)
    return hub


def kcard(*arguments: str, fails: bool = False) -> Result:
    done = CliRunner().invoke(app, ["hub", *arguments])
    assert (done.exit_code != 0) == fails, done.output
    return done


def data(*arguments: str) -> Any:
    return json.loads(kcard(*arguments, "--json").stdout)


def test_cards_of_before_are_measured_on_request_each_once(hub: Hub) -> None:
    assert [job["reference"] for job in data("measure")] == ["lakes@v1", "rivers@v1"]
    assert data("measure") == []
    assert [job["number"] for job in data("measure", "lakes")] == [1]
    shown = kcard("jobs").stdout.splitlines()
    assert [line.split("  ")[:3] for line in shown] == [
        ["2", "waiting", "rivers@v1"],
        ["1", "waiting", "lakes@v1"],
    ]
    claim = hub.jobs.claim("worker")
    assert claim is not None
    hub.jobs.fail(claim, "no question can be made", final=True)
    [failed] = data("jobs", "--state", "failed")
    assert (failed["reference"], failed["error"]) == ("lakes@v1", "no question can be made")
    assert [job["reference"] for job in data("measure")] == ["lakes@v1"]


REFUSED: list[tuple[list[str], str]] = [
    (["measure", "seas"], "unknown card 'seas'"),
    (["worker", "--drain", "--evidence", "nowhere.txt"], "evidence 'nowhere.txt' does not exist"),
    (["worker", "--drain", "--questions", "0"], "questions is 0: it must be at least 1"),
    (["worker", "--drain", "--memory", "much"], "size 'much'"),
]


def test_what_makes_no_sense_is_refused(hub: Hub) -> None:
    for arguments, said in REFUSED:
        assert said in str(kcard(*arguments, fails=True).exception), arguments
    assert hub.jobs.list() == []


def test_a_worker_without_jobs_stops_if_told_and_has_the_hub_measure_from_then_on(
    hub: Hub, tmp_path: Path
) -> None:
    hub.publish(rivers(tmp_path / "before", name="before").folder)
    kcard("worker", "--drain")
    hub.publish(rivers(tmp_path / "after", name="after").folder)
    assert [job["reference"] for job in data("jobs")] == ["after@v1"]
