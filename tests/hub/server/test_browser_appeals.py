"""What people do in a browser about quarantine: owners appeal, administrators decide and try failed jobs again."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcard.hub.repositories.values import Mark
from tests.hub.server.browser_session import Browser, hub_for_browsers, text
from tests.hub.server.quarantined_cards import claimed, finding, quarantined
from tests.hub.server.sample_cards import publish
from tests.hub.shared_hub import Shared

JOBS, APPEALS = "/settings/hub/jobs", "/settings/hub/appeals"
CARD, FORM = "/lab/onco", 'action="/lab/onco/appeal"'
NOTE = "The atlas is <b>old</b>.\nSee page 3."


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with hub_for_browsers(tmp_path_factory.mktemp("hub")) as shared:
        yield shared


@pytest.fixture
def shared(hub: Shared, tmp_path: Path) -> Iterator[Shared]:
    """lab/onco is quarantined by an audit; bob administers it, and cleo may write to it."""
    quarantined(hub, tmp_path, "lab/onco")
    yield hub
    hub.hub.repositories.delete(hub.hub.repositories.get("model", "lab/onco"))


def mark(shared: Shared) -> Mark:
    repository = shared.hub.repositories.get("model", "lab/onco")
    return shared.hub.publications.marks([repository.id])[repository.id]


def appealed(bob: Browser) -> str:
    """The number of an appeal that bob made."""
    assert bob.send("/lab/onco/appeal", {"note": NOTE, "version": "1"}).headers["location"] == CARD
    return str(bob.shared.hub.registry.appeals.list()[0].number)


def test_owner_appeals_once_and_reads_the_decision_on_the_card_page(bob: Browser, admin: Browser) -> None:
    shared = bob.shared
    assert FORM in bob.open(CARD)
    number = appealed(bob)
    page = bob.open(CARD)
    assert FORM not in page
    assert "Appeal is open" in page
    assert "The atlas is &lt;b&gt;old&lt;/b&gt;." in page
    shared.hub.registry.jobs.complete(claimed(shared), [finding(0.7)])
    assert "factuality 0.70" in bob.open(CARD)

    page = admin.open(APPEALS)
    for part in ("lab/onco@v1", "0.30 by audit", "0.70 by audit", "<dd>0.5</dd>", "atlas", "&lt;b&gt;old"):
        assert part in page, part
    sent = {"number": number, "answer": "release", f"note_{number}": "The second audit agrees."}
    assert admin.send(APPEALS, sent).status_code == 303
    assert not mark(shared).quarantined
    assert "No appeal is open" in admin.open(APPEALS)
    assert "The second audit agrees." in admin.open(APPEALS)
    page = bob.open(CARD)
    assert "was released from quarantine" in page
    assert "The second audit agrees." in page
    assert "<b>Quarantined:</b>" not in page
    assert [event.actor for event in shared.hub.events.list(3)] == ["ada", None, "bob"]


def test_card_that_is_kept_shows_why_and_has_no_second_form(bob: Browser, admin: Browser) -> None:
    number = appealed(bob)
    admin.send(APPEALS, {"number": number, "answer": "keep", f"note_{number}": "The atlas is right."})
    assert mark(bob.shared).quarantined
    page = bob.open(CARD)
    assert "stays in quarantine" in page
    assert "The atlas is right." in page
    assert FORM not in page
    answer = bob.send("/lab/onco/appeal", {"note": "Again.", "version": "1"})
    assert answer.status_code == 409
    assert "there is an appeal against audit" in text(answer)


def test_only_administrators_of_the_repository_appeal(shared: Shared) -> None:
    for who, said in (("cleo", "Administrators of lab may appeal"), ("bob:read", ""), ("dan", "")):
        browser = Browser(shared).log_in(who)
        page = browser.open(CARD)
        assert FORM not in page, who
        assert said in page, who
        assert ('aria-label="Appeal"' in page) == bool(said), who
        browser.open("/settings")
        assert browser.send("/lab/onco/appeal", {"note": "No."}).status_code == 403, who
        browser.open("/lab/onco/appeal", 403)
    anyone = Browser(shared)
    assert 'aria-label="Appeal"' not in anyone.open(CARD)
    assert anyone.http.get("/lab/onco/appeal").headers["location"].startswith("/login?next=")
    assert shared.hub.registry.appeals.list() == []


@pytest.mark.parametrize("note", ["", " ", "x" * 2001, "a\x07b"])
def test_wrong_note_is_kept_with_its_error_beside_it(bob: Browser, note: str) -> None:
    answer = bob.send("/lab/onco/appeal", {"note": note, "version": "1"})
    assert answer.status_code == 400
    assert 'id="note-error"' in answer.text
    assert f">\n{note}</textarea>" in answer.text
    assert bob.shared.hub.registry.appeals.list() == []


@pytest.mark.parametrize("version", ["7", "", "x", "9" * 30])
def test_appeal_for_a_version_that_does_not_exist_is_refused(bob: Browser, version: str) -> None:
    answer = bob.send("/lab/onco/appeal", {"note": "No.", "version": version})
    assert (answer.status_code, "has not published such a version" in text(answer)) == (404, True)


def test_there_is_no_appeal_where_no_audit_quarantines(shared: Shared, bob: Browser) -> None:
    shared.hub.registry.quarantine.set(0.2)
    assert 'aria-label="Appeal"' not in bob.open(CARD)
    assert "nothing to appeal against" in bob.open("/lab/onco/appeal")
    answer = bob.send("/lab/onco/appeal", {"note": "No.", "version": "1"})
    assert (answer.status_code, 'role="alert"' in answer.text) == (400, True)


def test_card_below_the_threshold_by_its_own_exam_has_no_form(shared: Shared, tmp_path: Path) -> None:
    shared.create("bob/poor")
    publish(shared, tmp_path / "poor", "bob/poor", "Poor", "science", factuality=0.2)
    page = Browser(shared).log_in("bob").open("/bob/poor")
    assert "own exam quarantines it" in page
    assert 'action="/bob/poor/appeal"' not in page
    shared.hub.repositories.delete(shared.hub.repositories.get("model", "bob/poor"))


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"answer": "burn"}, 400, True),
        ({"note": "x" * 2001}, 400, True),
        ({"number": "999999"}, 404, False),
        ({"number": "x"}, 404, False),
    ],
)
def test_wrong_decision_changes_nothing_and_is_explained(
    bob: Browser, admin: Browser, change: dict[str, str], status: int, field: bool
) -> None:
    number = appealed(bob)
    note = change.pop("note", "Kept as typed")
    answer = admin.send(APPEALS, {"number": number, "answer": "keep", f"note_{number}": note} | change)
    assert answer.status_code == status
    assert (f'id="note_{number}-error"' in answer.text) == field
    assert 'role="alert"' in answer.text
    assert note in answer.text
    assert [appeal.decision for appeal in bob.shared.hub.registry.appeals.list()] == [None]


def test_appeal_is_decided_once(bob: Browser, admin: Browser) -> None:
    sent = {"number": appealed(bob), "answer": "keep"}
    assert admin.send(APPEALS, sent).status_code == 303
    answer = admin.send(APPEALS, sent | {"answer": "release"})
    assert (answer.status_code, "was decided already: kept" in text(answer)) == (409, True)
    assert mark(bob.shared).quarantined


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


def test_jobs_and_decided_appeals_are_turned_page_by_page(
    bob: Browser, admin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each audit has an appeal of its own, and each appeal has a job."""
    shared = bob.shared
    registry = shared.hub.registry
    for place in range(3):
        if place:
            registry.jobs.add(registry.get("lab/onco"))
            registry.jobs.complete(claimed(shared), [finding(0.3)])
        number = appealed(bob)
        registry.jobs.complete(claimed(shared), [finding(0.4)])
        admin.send(APPEALS, {"number": number, "answer": "keep"})
    monkeypatch.setattr("kcard.hub.server.forms.administration.appeals.ROWS", 2)
    monkeypatch.setattr("kcard.hub.server.forms.administration.jobs.ROWS", 2)
    pattern = r'<tr><td>(\d+) <a href="/lab/onco">lab/onco@v1</a>'
    for start, expected in (
        (APPEALS, [str(each.number) for each in registry.appeals.list()]),
        (f"{JOBS}?state=done", [str(each.number) for each in registry.jobs.list()]),
    ):
        seen, path = [], start
        while path:
            page = admin.open(path)
            seen += re.findall(pattern, page)
            turn = re.search(r'rel="next" href="([^"]+)"', page)
            path = turn[1].replace("&amp;", "&") if turn else ""
        assert seen == expected, start
        assert len(seen) in {3, 6}


def test_jobs_and_appeals_are_for_administrators_of_the_hub(shared: Shared, bob: Browser) -> None:
    number = appealed(bob)
    for path in (JOBS, APPEALS):
        bob.open(path, 403)
        Browser(shared).log_in("bob:admin").open(path, 403)
        Browser(shared).log_in("ada").open(path, 403)  # its token has scope write
        assert Browser(shared).http.get(path).headers["location"].startswith("/login?next=")
        assert bob.send(path, {"number": number, "answer": "release"}).status_code == 403
    assert mark(shared).quarantined


def test_hub_that_measured_nothing_says_so(tmp_path: Path) -> None:
    with hub_for_browsers(tmp_path) as empty:
        admin = Browser(empty).log_in("ada:admin")
        assert "Nothing was measured yet" in admin.open(JOBS)
        assert "kcard hub worker" in admin.open(JOBS)
        page = admin.open(APPEALS)
        assert "No appeal is open" in page
        assert "No appeal was decided yet" in page
