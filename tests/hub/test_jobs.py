"""The queue of measurements: durable, claimed once, completed by the holder of the lease only."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from kcard.errors import HubError
from kcard.hub.records.repository_tables import jobs as job_table
from kcard.hub.records.utc import now
from kcard.hub.refusals import Conflict, NotThere
from kcard.hub.repositories.audits import AuditFinding
from kcard.hub.repositories.jobs import MOST_ATTEMPTS, Claim, Jobs, LeaseLost
from kcard.hub.shared import SharedHub
from kcard.manifest import seal
from tests.hub.client.cards import rivers

PAST = timedelta(seconds=-1)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a hub that measures, with a card that waits to be measured."""
    folder = tmp_path_factory.mktemp("prepared")
    with measuring(folder / "home", folder / "card") as hub:
        assert len(hub.registry.jobs.list()) == 1
    return folder / "home"


@pytest.fixture
def hub(prepared: Path, tmp_path: Path) -> Iterator[SharedHub]:
    """Such a hub on SQLite."""
    hub = SharedHub.open(shutil.copytree(prepared, tmp_path / "home"))
    yield hub
    hub.database.close()


@pytest.fixture
def any_hub(tmp_path: Path, any_database: str | None) -> Iterator[SharedHub]:
    """Such a hub on both databases in turn."""
    with measuring(tmp_path / "home", tmp_path / "any", any_database) as hub:
        yield hub


@contextmanager
def measuring(home: Path, card: Path, database_url: str | None = None) -> Iterator[SharedHub]:
    hub = SharedHub.open(home, database_url=database_url)
    hub.registry.jobs.switch(True)
    hub.registry.publish(rivers(card).folder)
    yield hub
    hub.database.close()


def finding(factuality: float | None) -> AuditFinding:
    return AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, 1.0, factuality, "{}")


def claimed(jobs: Jobs, worker: str = "one") -> Claim:
    claim = jobs.claim(worker)
    assert claim is not None
    return claim


def make_due(hub: SharedHub) -> None:
    with hub.database.write() as connection:
        connection.execute(update(job_table).values(due=now() + PAST))


def test_a_published_version_waits_to_be_measured_where_the_hub_measures(
    hub: SharedHub, tmp_path: Path
) -> None:
    registry = hub.registry
    assert [(job.reference, job.state) for job in registry.jobs.list()] == [("rivers@v1", "waiting")]
    registry.publish(rivers(tmp_path / "again").folder, aliases=["stable"])
    assert len(registry.jobs.list()) == 1  # the same version
    registry.jobs.switch(False)
    registry.publish(rivers(tmp_path / "next", "The Rhine is long.").folder)
    assert len(registry.jobs.list()) == 1
    assert registry.jobs.add(registry.get("rivers@v2")).reference == "rivers@v2"
    assert registry.jobs.add(registry.get("rivers@v2")).number == registry.jobs.list()[0].number


def test_a_card_whose_model_is_elsewhere_is_not_measured(hub: SharedHub, tmp_path: Path) -> None:
    card = rivers(tmp_path / "elsewhere", name="elsewhere")
    seal(card.folder, replace(card.manifest, kind="search"))
    version = hub.registry.publish(card.folder)
    assert len(hub.registry.jobs.list()) == 1
    with pytest.raises(HubError, match=r"elsewhere@v1 can't be measured.*kcard audit"):
        hub.registry.jobs.add(version)


def test_a_claimed_job_is_nobody_else_s(hub: SharedHub) -> None:
    jobs = hub.registry.jobs
    claim = claimed(jobs)
    assert (claim.job.state, claim.job.attempts, claim.job.worker) == ("running", 1, "one")
    assert jobs.claim("two") is None
    jobs.complete(claim, [finding(0.8)])
    assert jobs.claim("two") is None
    assert [job.state for job in jobs.list()] == ["done"]
    verified = hub.registry.get("rivers").verified
    assert verified is not None
    assert (verified.factuality, verified.evidence) == (0.8, "atlas")


def test_many_workers_claim_each_job_once(any_hub: SharedHub, tmp_path: Path) -> None:
    for number in range(7):
        any_hub.registry.publish(rivers(tmp_path / str(number), name=f"card{number}").folder)
    claims: list[Claim] = []

    def work(name: str) -> None:
        while (claim := any_hub.registry.jobs.claim(name)) is not None:
            claims.append(claim)

    threads = [threading.Thread(target=work, args=(f"worker {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claim.job.number for claim in claims) == list(range(1, 9))


def test_the_job_of_a_dead_worker_goes_to_another_and_the_first_can_write_nothing(any_hub: SharedHub) -> None:
    short = Jobs(any_hub.database, lease=PAST)
    first = claimed(short)
    second = claimed(any_hub.registry.jobs, "two")
    assert second.job.attempts == 2
    with pytest.raises(LeaseLost, match=r"rivers@v1.*no longer this worker's"):
        short.extend(first)
    for late in (lambda: short.complete(first, [finding(1.0)]), lambda: short.fail(first, "late")):
        with pytest.raises(LeaseLost):
            late()
    assert any_hub.registry.audits.list() == []
    any_hub.registry.jobs.extend(second)
    any_hub.registry.jobs.complete(second, [finding(0.4)])
    assert [audit.finding.factuality for audit in any_hub.registry.audits.list()] == [0.4]


def test_an_extended_lease_holds(hub: SharedHub) -> None:
    claim = claimed(Jobs(hub.database, lease=PAST))
    hub.registry.jobs.extend(claim)
    assert hub.registry.jobs.claim("two") is None


def test_a_result_that_cant_be_stored_leaves_the_job_as_it_was(any_hub: SharedHub) -> None:
    claim = claimed(any_hub.registry.jobs)
    bad = finding("not a number")  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"(?i)number|float|double|type"):
        any_hub.registry.jobs.complete(claim, [finding(0.5), bad, object()])  # type: ignore[list-item]
    assert any_hub.registry.audits.list() == []
    assert any_hub.registry.jobs.list()[0].state == "running"


def test_a_failed_job_is_tried_again_later_and_later_and_then_given_up(hub: SharedHub) -> None:
    jobs, waits = hub.registry.jobs, []
    for attempt in range(1, MOST_ATTEMPTS + 1):
        job = jobs.fail(claimed(jobs), f"out of\nmemory {attempt}")
        assert (job.attempts, job.error) == (attempt, f"out of memory {attempt}")
        if attempt < MOST_ATTEMPTS:
            assert jobs.claim("two") is None
            waits.append(job.due - now())
            make_due(hub)
    assert jobs.claim("two") is None
    assert [job.state for job in jobs.list()] == ["failed"]
    assert [round(wait.total_seconds(), -1) for wait in waits] == [30, 60, 120]
    assert [(e.action, e.target) for e in hub.events.list(1)] == [("job.failed", "rivers@v1")]


def test_a_final_error_is_not_tried_again(hub: SharedHub) -> None:
    assert hub.registry.jobs.fail(claimed(hub.registry.jobs), "not a card", final=True).state == "failed"


def test_a_job_that_kills_its_workers_is_given_up(hub: SharedHub) -> None:
    short = Jobs(hub.database, lease=PAST)
    for _ in range(MOST_ATTEMPTS):
        claimed(short)
    assert short.claim("one more") is None
    [job] = short.list()
    assert (job.state, job.error) == ("failed", f"its worker died, or lost its lease, {MOST_ATTEMPTS} times")


def test_a_released_job_is_claimed_at_once_and_has_lost_no_attempt(hub: SharedHub) -> None:
    hub.registry.jobs.release(claimed(hub.registry.jobs))
    assert claimed(hub.registry.jobs, "two").job.attempts == 1


def test_jobs_go_with_their_version_and_come_with_a_backup(hub: SharedHub, tmp_path: Path) -> None:
    claim = claimed(hub.registry.jobs)
    hub.registry.backup(tmp_path / "hub.tar")
    hub.registry.remove("rivers")
    with pytest.raises(LeaseLost):
        hub.registry.jobs.complete(claim, [finding(0.5)])
    assert hub.registry.jobs.list() == []
    other = SharedHub.open(tmp_path / "other")
    other.registry.restore(tmp_path / "hub.tar")
    assert [job.reference for job in other.registry.jobs.list()] == ["rivers@v1"]
    other.database.close()


def test_a_failed_job_is_tried_again(any_hub: SharedHub) -> None:
    registry = any_hub.registry
    failed = registry.jobs.fail(claimed(registry.jobs), "out of memory", final=True)
    again = registry.jobs.retry(failed.number)
    assert (again.state, again.attempts) == ("waiting", 0)
    assert again.number == registry.jobs.retry(failed.number).number  # it waits already
    registry.jobs.complete(claimed(registry.jobs), [finding(0.9)])
    with pytest.raises(Conflict, match="has not failed: it is done"):
        registry.jobs.retry(again.number)
    with pytest.raises(NotThere, match="job 999 not found"):
        registry.jobs.retry(999)


def test_jobs_are_listed_in_part(any_hub: SharedHub) -> None:
    registry = any_hub.registry
    for _ in range(3):
        registry.jobs.complete(claimed(registry.jobs), [finding(0.4)])
        registry.jobs.add(registry.get("rivers"))
    newest, *older = [job.number for job in registry.jobs.list()]
    assert [job.number for job in registry.jobs.list(before=newest, limit=2)] == older[:2]
    assert registry.jobs.list()[0].repository == "library/rivers"
