"""Audits beside a version, and cards under the threshold: kept, restored, marked, and used only where named."""

import json
import shutil
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kcard.errors import HubError, UnknownCard, UsageError
from kcard.hub.accounts import Events
from kcard.hub.audits import AuditFinding
from kcard.hub.errors import Invalid
from kcard.hub.registry import Hub
from kcard.hub.values import QuarantineReason
from tests.hub.stand import seal_card


def card(hub: Hub, folder: Path, name: str, exam: float | str | None = None, text: str = "") -> None:
    if isinstance(exam, float):
        exam = json.dumps({"own": {"factuality": {"mean": {"mean": exam}}}})
    files = {} if exam is None else {"exam.json": exam.encode()}
    hub.publish(seal_card(folder, name, text, files, domain="politics/us"))


def finding(factuality: float | None, record: str = "{}") -> AuditFinding:
    name, digest = (None, None) if factuality is None else ("atlas", "ab" * 32)
    return AuditFinding("minilm", "cd" * 32, name, digest, "asked", "ef" * 32, 7, 0.9, factuality, record)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a hub with an honest card, one that lies, one that was never audited."""
    folder = tmp_path_factory.mktemp("template")
    hub = Hub(folder / "home")
    for name in ("honest", "liar", "unknown"):
        card(hub, folder / name, name)
    hub.audits.add(hub.get("honest"), finding(0.8))
    hub.audits.add(hub.get("liar"), finding(0.2))
    hub.database.close()
    return hub.home


@pytest.fixture
def hub(home: Path, template: Path) -> Hub:
    shutil.copytree(template, home)
    return Hub(home)


def used(hub: Hub, *selection: str) -> list[str]:
    return [version.name for version in hub.resolve(selection or None)]


def test_audits_are_kept_in_order_with_their_version_and_time(hub: Hub, tmp_path: Path) -> None:
    card(hub, tmp_path / "liar", "liar", text="mended")
    before = datetime.now(UTC)
    stored = hub.audits.add(hub.get("liar"), finding(0.7, "later"))
    assert before <= stored.taken <= datetime.now(UTC)
    assert [(a.reference, a.finding.factuality) for a in hub.audits.list("liar")] == [
        ("liar@v1", 0.2),
        ("liar@v2", 0.7),
    ]
    assert hub.audits.list("liar")[-1] == stored
    assert len(hub.audits.list()) == 3


def test_a_version_that_was_removed_meanwhile_keeps_no_audit(hub: Hub) -> None:
    gone = hub.get("liar")
    hub.remove("liar")
    with pytest.raises(UnknownCard, match="liar@v1 was removed during its audit"):
        hub.audits.add(gone, finding(0.5))
    assert [a.card for a in hub.audits.list()] == ["honest"]


def test_the_threshold_holds_for_every_process_until_it_is_switched_off(hub: Hub) -> None:
    for threshold in (0.5, None):
        hub.quarantine.set(threshold)
        assert Hub(hub.home).quarantine.threshold == threshold


@pytest.mark.parametrize("share", [-0.1, 1.01, float("nan")])
def test_a_threshold_or_coverage_outside_0_and_1_is_refused(hub: Hub, share: float) -> None:
    with pytest.raises(UsageError, match=r"threshold .*: it must be between 0 and 1, or off$"):
        hub.quarantine.set(share)
    with pytest.raises(UsageError, match=r"coverage .*: it must be between 0 and 1$"):
        hub.quarantine.set_coverage(share)
    assert (hub.quarantine.threshold, hub.quarantine.coverage) == (None, 0.5)


def test_a_threshold_that_is_no_number_is_one_clear_error(hub: Hub) -> None:
    connection = sqlite3.connect(hub.home / "hub" / "hub.db")
    connection.execute("INSERT INTO settings VALUES ('threshold', 'high')")
    connection.commit()
    connection.close()
    with pytest.raises(HubError, match=r"invalid threshold 'high'.*kcard hub threshold 0.5"):
        hub.resolve(None)


def test_a_card_under_the_threshold_is_seen_but_used_only_where_it_is_named(hub: Hub) -> None:
    hub.quarantine.set(0.5)
    hub.pools.create("clinic", ["liar", "honest"])
    assert [v.name for v in hub.list()] == ["honest", "liar", "unknown"]
    [audit] = hub.audits.list("liar")
    reason = QuarantineReason(0.2, 0.5, 2, audit.taken, "atlas")
    assert [v.quarantine for v in hub.list()] == [None, reason, None]
    assert used(hub) == used(hub, "politics/") == ["honest", "unknown"]
    assert used(hub, "pool:clinic") == ["honest"]
    for name in ("liar", "liar@v1", f"liar@{hub.get('liar').sha256[:8]}"):
        assert used(hub, name) == ["liar"]
    assert used(hub, "politics/", "liar@v1") == ["honest", "liar", "unknown"]


def test_the_reason_names_audit_score_threshold_and_evidence(hub: Hub) -> None:
    hub.quarantine.set(0.5)
    [audit] = hub.audits.list("liar")
    assert str(hub.get("liar").quarantine) == (
        f"factuality 0.20 (verified, by audit 2 of {audit.taken:%Y-%m-%d} against atlas) is below the hub's threshold "
        "of 0.5"
    )
    hub.audits.add(hub.get("honest"), finding(0.4))
    events = {event.action: event for event in Events(hub.database).list(2)}
    assert events["card.measured"].target == events["card.quarantined"].target == "honest@v1"
    why = {"audit": 3, "factuality": 0.4, "threshold": 0.5, "evidence": "atlas"}
    assert events["card.quarantined"].detail == why


def test_what_is_left_out_or_used_in_spite_of_it_is_told(hub: Hub) -> None:
    hub.quarantine.set(0.5)
    why = "liar@v1 (0.20 verified), with factuality below the hub's threshold of 0.5"
    assert hub.select(["politics/"]).note == f"left out: {why}; name a card to use it anyway"
    assert hub.select(["honest", "liar"]).note == f"used because it is named: {why}"
    assert hub.select(["honest"]).note == ""
    hub.pools.create("clinic", ["liar"])
    with pytest.raises(HubError, match=r"all .* quarantined: liar@v1 \(0\.20 verified\).*--cards liar"):
        hub.resolve(["pool:clinic"])


def test_the_latest_audit_that_measured_factuality_decides(hub: Hub) -> None:
    hub.quarantine.set(0.5)
    hub.audits.add(hub.get("liar"), finding(None))
    assert "liar" not in used(hub)
    hub.audits.add(hub.get("liar"), finding(0.6))
    assert "liar" in used(hub)


def test_missing_evidence_is_not_falsehood(hub: Hub) -> None:
    hub.quarantine.set(0.5)
    card = hub.get("unknown")
    hub.audits.add(card, replace(finding(0.24), coverage=0.33, judged=10, overlap=0.0))
    assert "unknown" in used(hub)
    assert Events(hub.database).list(1)[0].action == "card.measured"  # not card.quarantined
    hub.quarantine.set_coverage(0.3)
    assert "unknown" not in used(hub)
    reason = hub.get("unknown").quarantine
    assert reason is not None
    assert reason.coverage == 0.33
    assert "33% of the documents covered" in str(reason)


def test_an_audit_whose_evidence_covers_little_frees_no_card(hub: Hub) -> None:
    hub.quarantine.set(0.5)
    for coverage, is_freed in ((0.1, False), (0.6, True)):
        hub.audits.add(hub.get("liar"), replace(finding(0.9), coverage=coverage, judged=30))
        assert ("liar" in used(hub)) == is_freed


def test_evidence_that_repeats_the_corpus_holds_and_frees_no_card(hub: Hub) -> None:
    hub.quarantine.set(0.5)
    hub.audits.add(hub.get("liar"), replace(finding(0.9), coverage=1.0, overlap=0.4))
    assert "liar" not in used(hub)
    hub.audits.add(hub.get("unknown"), replace(finding(0.1), coverage=1.0, overlap=0.4))
    assert "unknown" in used(hub)
    shown = hub.get("unknown").verified
    assert shown is not None
    assert not shown.independent


def test_the_exam_of_a_card_needs_coverage_too(hub: Hub, tmp_path: Path) -> None:
    hub.quarantine.set(0.5)
    for name, unknown in (("covered", 1), ("hardly", 9)):
        scores = {"mean": {"mean": 0.2}, "scores": [0.2, 0.2], "unknown": unknown}
        card(hub, tmp_path / name, name, exam=json.dumps({"own": {"factuality": scores}}))
    assert "covered" not in used(hub)
    assert "hardly" in used(hub)


def test_a_new_version_is_judged_by_itself_and_no_older_one_takes_its_place(hub: Hub, tmp_path: Path) -> None:
    hub.quarantine.set(0.5)
    card(hub, tmp_path / "honest", "honest", text="worse")
    assert "honest" in used(hub)
    hub.audits.add(hub.get("honest"), finding(0.1))
    assert "honest" not in used(hub)
    assert used(hub, "honest@v1") == ["honest"]


def test_an_exam_holds_a_card_back_but_never_frees_one_that_an_audit_holds(hub: Hub, tmp_path: Path) -> None:
    hub.quarantine.set(0.5)
    card(hub, tmp_path / "modest", "modest", exam=0.3)
    card(hub, tmp_path / "boaster", "boaster", exam=1.0)
    assert used(hub) == ["boaster", "honest", "unknown"]
    hub.audits.add(hub.get("boaster"), finding(0.1))
    hub.audits.add(hub.get("modest"), finding(0.9))
    assert used(hub) == ["honest", "modest", "unknown"]


@pytest.mark.parametrize(
    "exam", ["no JSON", "[]", '{"own": null}', '{"own": {"factuality": {"mean": null}}}']
)
def test_an_exam_that_measured_nothing_or_cant_be_read_holds_nothing_back(
    hub: Hub, tmp_path: Path, exam: str
) -> None:
    hub.quarantine.set(0.5)
    card(hub, tmp_path / "odd", "odd", exam=exam)
    assert "odd" in used(hub)


def test_a_released_card_is_used_until_another_audit(hub: Hub) -> None:
    hub.quarantine.set(0.5)
    hub.quarantine.release(hub.get("liar"), by="ada")
    assert "liar" in used(hub)
    event = Events(hub.database).list(1)[0]
    assert (event.action, event.actor, event.target) == ("card.released", "ada", "liar@v1")
    hub.audits.add(hub.get("liar"), finding(0.3))
    assert "liar" not in used(hub)


def test_only_what_an_audit_quarantines_is_released(hub: Hub, tmp_path: Path) -> None:
    hub.quarantine.set(0.5)
    with pytest.raises(Invalid, match="honest@v1 is not quarantined"):
        hub.quarantine.release(hub.get("honest"))
    card(hub, tmp_path / "modest", "modest", exam=0.3)
    with pytest.raises(Invalid, match="modest@v1 is quarantined by its own exam"):
        hub.quarantine.release(hub.get("modest"))
    gone = hub.get("liar")
    hub.remove("liar")
    with pytest.raises(UnknownCard, match="liar@v1 was removed"):
        hub.quarantine.release(gone)
