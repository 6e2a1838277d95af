"""Measurements in the browser: administrators of the hub see them, and try failed ones again."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.server.browser_session import Browser, hub_for_browsers
from tests.hub.server.quarantined_cards import claimed, finding, quarantined
from tests.hub.shared_hub import Shared

JOBS = "/settings/hub/jobs"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with hub_for_browsers(tmp_path_factory.mktemp("hub")) as shared:
        yield shared


@pytest.fixture
def shared(hub: Shared, tmp_path: Path) -> Iterator[Shared]:
    """lab/onco is measured and quarantined; bob administers it."""
    quarantined(hub, tmp_path, "lab/onco")
    yield hub
    hub.hub.repositories.delete(hub.hub.repositories.get("model", "lab/onco"))


def test_failed_job_is_tried_again(shared: Shared, admin: Browser) -> None:
    jobs = shared.hub.registry.jobs
    done = jobs.list()[0]
    again = jobs.add(shared.hub.registry.get("lab/onco"))
    jobs.fail(claimed(shared), "no <i>memory</i>", final=True)
    page = admin.open(JOBS)
    assert "no &lt;i&gt;memory&lt;/i&gt;" in page
    assert page.count(">Try again<") == 1
    assert admin.send(JOBS, {"number": str(again.number)}).status_code == 303
    assert admin.send(JOBS, {"number": str(again.number)}).status_code == 303  # it waits already
    assert [job.state for job in jobs.list()] == ["waiting", "failed", "done"]
    assert "lab/onco@v1" in admin.open(f"{JOBS}?state=waiting")
    assert "No job is in state running" in admin.open(f"{JOBS}?state=running")
    for number, status in ((done.number, 409), (10**6, 404), ("x", 404)):
        answer = admin.send(JOBS, {"number": str(number)})
        assert (answer.status_code, 'role="alert"' in answer.text) == (status, True)
    assert len(jobs.list()) == 3


def test_jobs_are_turned_page_by_page(
    shared: Shared, admin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = shared.hub.registry
    for _ in range(2):
        registry.jobs.add(registry.get("lab/onco"))
        registry.jobs.complete(claimed(shared), [finding(0.3)])
    monkeypatch.setattr("kcard.hub.server.forms.administration.jobs.ROWS", 2)
    seen, path = [], f"{JOBS}?state=done"
    while path:
        page = admin.open(path)
        seen += re.findall(r'<tr><td>(\d+) <a href="/lab/onco">lab/onco@v1</a>', page)
        turn = re.search(r'rel="next" href="([^"]+)"', page)
        path = turn[1].replace("&amp;", "&") if turn else ""
    assert seen == [str(each.number) for each in registry.jobs.list()]
    assert len(seen) == 3


def test_jobs_are_for_administrators_of_the_hub(shared: Shared, bob: Browser) -> None:
    number = shared.hub.registry.jobs.list()[0].number
    bob.open(JOBS, 403)
    Browser(shared).log_in("bob:admin").open(JOBS, 403)
    Browser(shared).log_in("ada").open(JOBS, 403)  # its token has scope write
    assert Browser(shared).http.get(JOBS).headers["location"].startswith("/login?next=")
    assert bob.send(JOBS, {"number": str(number)}).status_code == 403


def test_hub_that_measured_nothing_says_so(tmp_path: Path) -> None:
    with hub_for_browsers(tmp_path) as empty:
        admin = Browser(empty).log_in("ada:admin")
        assert "Nothing was measured yet" in admin.open(JOBS)
        assert "kcard hub worker" in admin.open(JOBS)
