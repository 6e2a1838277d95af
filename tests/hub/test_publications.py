"""A tag on a card publishes a version: whole, checked, for good, and marked by what is known of it."""

import hashlib
import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kcard.errors import UnknownCard
from kcard.hub.audits import AuditFinding
from kcard.hub.db.models import Repository, Version
from kcard.hub.errors import Conflict, Forbidden, Invalid, NotFound
from kcard.hub.values import DeclaredFigures, Delete, QuarantineReason
from kcard.manifest import MANIFEST, Manifest
from tests.hub.exams import exam
from tests.hub.stand import Stand, recorded_statements, stand


@pytest.fixture
def repository(hub: Stand) -> Repository:
    return hub.make("ada/Onco")


def tensors(value: float = 1.0) -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack("<f", value)


def card(kind: str = "full", factuality: object = 0.9, **files: bytes) -> dict[str, bytes]:
    """The files of a card; `factuality` None: without an exam."""
    content = {"model.safetensors": tensors(), "config.json": b"{}"}
    content |= {} if factuality is None else {"exam.json": exam("onco", factuality)}
    content |= {name.replace("_", "."): text for name, text in files.items()}
    digests = {path: hashlib.sha256(text).hexdigest() for path, text in content.items()}
    manifest = Manifest(
        name="onco", description="Tumours", domain="biomedical/oncology", kind=kind, files=digests
    )
    return {**content, MANIFEST: manifest.to_json().encode()}


def publish(hub: Stand, repository: Repository, files: dict[str, bytes], tag: str) -> str:
    sha = hub.commit(repository, files).sha
    publication = hub.publications.publish(repository, tag, sha, hub.who("ada"), "hello")
    assert publication is not None
    return publication.version


def test_a_tag_on_a_card_is_a_version_named_by_the_sha256_of_its_manifest(
    hub: Stand, repository: Repository
) -> None:
    files = card()
    version = publish(hub, repository, files, "v1")
    assert version == hashlib.sha256(files[MANIFEST]).hexdigest()
    stored = hub.registry.get("ada/Onco@v1")
    assert (stored.sha256, stored.manifest.name) == (version, "onco")
    with hub.registry.open("ada/Onco", "config.json") as stream:
        assert stream.read() == b"{}"
    assert hub.registry.verify() == []
    folder = hub.registry.folder("ada/Onco")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    hub.registry.gc()
    assert {path.name for path in folder.iterdir()} == set(files)
    (publication,) = hub.publications.list(repository)
    assert (publication.tag, publication.version, publication.number, publication.author) == (
        "v1",
        version,
        1,
        "ada",
    )
    assert [(ref.name, ref.message) for ref in hub.refs.tags(repository)] == [("v1", "hello")]


def test_a_card_is_found_by_what_its_manifest_says(hub: Stand, repository: Repository) -> None:
    hub.commit(repository, card())
    tags = hub.repositories.get("model", "ada/onco").tags
    assert {
        "kcard",
        "kcard:kind:model",
        "kcard:method:full",
        "domain:biomedical",
        "domain:biomedical/oncology",
    } <= set(tags)


def test_a_commit_without_a_card_and_a_dataset_publish_nothing(hub: Stand, repository: Repository) -> None:
    ada = hub.who("ada")
    assert hub.publications.publish(repository, "v1", repository.head or "", ada) is None
    data = hub.repositories.create("dataset", ada.account_id, "ada/Onco", by=ada)
    sha = hub.commit(data, card()).sha
    assert hub.publications.publish(data, "v1", sha, ada) is None
    assert hub.refs.tags(repository) == hub.refs.tags(data) == []


def test_the_same_card_under_another_tag_is_the_same_version(hub: Stand, repository: Repository) -> None:
    first = publish(hub, repository, card(), "v1")
    assert publish(hub, repository, {"notes.txt": b"beside the card"}, "stable") == first
    assert publish(hub, repository, card(factuality=0.8), "v2") != first
    assert [(p.tag, p.number) for p in hub.publications.list(repository)] == [
        ("v1", 1),
        ("stable", 1),
        ("v2", 2),
    ]


# What a publisher can write without any exam.
FORGED = b'{"own":{"recall":{"mean":1},"factuality":{"mean":{"mean":1}}}}'
BROKEN = {
    "is not a card manifest": {MANIFEST: b"{}", "a.txt": b""},
    "sha256": {**card(), "config.json": b'{"changed": 1}'},
    "is not in the commit": {k: v for k, v in card().items() if k != "config.json"},
    "exam.json is missing": card(factuality=None),
    "its format is not 2": card(factuality=None, exam_json=b"[]"),
    "list of scores between 0 and 1": card(factuality=7),
    "exam.json is not plausible": card(factuality=None, exam_json=FORGED),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_card_that_is_not_whole_is_refused_and_there_is_no_tag(tmp_path: Path, reason: str) -> None:
    with stand(tmp_path) as hub:
        repository = hub.make("ada/onco")
        sha = hub.commit(repository, BROKEN[reason]).sha
        with pytest.raises(Invalid, match="can't publish the card") as error:
            hub.publications.publish(repository, "v1", sha, hub.who("ada"))
        expected = "unknown" if reason == "is not a card manifest" else reason
        error.match(expected)
        assert hub.refs.tags(repository) == []
        with pytest.raises(UnknownCard):
            hub.registry.versions("ada/onco")


@pytest.mark.parametrize("path", ["run.py", "model.safetensors"])
def test_a_card_with_a_file_that_could_run_code_is_refused(tmp_path: Path, path: str) -> None:
    with stand(tmp_path) as hub:
        repository = hub.make("ada/onco")
        files = card(factuality=0.9)
        content = {**{k: v for k, v in files.items() if k != MANIFEST}, path: b"\x80\x02}q\x00."}
        digests = {name: hashlib.sha256(text).hexdigest() for name, text in content.items()}
        manifest = Manifest(name="onco", description="Tumours", files=digests)
        sha = hub.commit(repository, {**content, MANIFEST: manifest.to_json().encode()}).sha
        with pytest.raises(Invalid, match=path):
            hub.publications.publish(repository, "v1", sha, hub.who("ada"))


@pytest.mark.parametrize("kind", ["reference", "llm", "search", "retrieval"])
def test_what_nobody_trained_needs_no_exam(tmp_path: Path, kind: str) -> None:
    with stand(tmp_path) as hub:
        publish(hub, hub.make("ada/onco"), card(kind, factuality=None), "v1")


def test_an_exam_without_independent_evidence_leaves_factuality_unknown(tmp_path: Path) -> None:
    with stand(tmp_path) as hub:
        repository = hub.make("ada/onco")
        publish(hub, repository, card(factuality=None, exam_json=exam("onco")), "v1")
        assert hub.publications.summarize([repository.id])[repository.id].declared == DeclaredFigures(0.9)


def test_a_forged_exam_is_self_declared_and_not_plausible_and_verifies_nothing(tmp_path: Path) -> None:
    with stand(tmp_path, exam_required=False) as hub:
        repository = hub.make("ada/onco")
        publish(hub, repository, card(factuality=None, exam_json=FORGED), "v1")
        mark = hub.publications.summarize([repository.id])[repository.id]
        assert (mark.declared, mark.verified) == (DeclaredFigures(1, 1, "its format is not 2"), None)
        assert mark.unexamined
        version = hub.registry.get("ada/onco")
        assert (version.declared, version.verified, version.unexamined) == (mark.declared, None, True)


@pytest.mark.parametrize("kind", ["reference", "llm", "search", "retrieval", "full"])
def test_weights_without_an_exam_are_marked_under_every_kind_of_card(tmp_path: Path, kind: str) -> None:
    with stand(tmp_path, exam_required=False) as hub:
        repository, other = hub.make("ada/onco"), hub.make("ada/other")
        publish(hub, repository, card(kind, factuality=None), "v1")
        publish(hub, other, card(kind), "v1")
        marks = hub.publications.summarize([repository.id, other.id])
        assert (marks[repository.id].unexamined, marks[other.id].unexamined) == (True, False)


def test_a_published_tag_is_there_to_stay(hub: Stand, repository: Repository) -> None:
    publish(hub, repository, card(), "v1")
    later = hub.commit(repository, card(factuality=0.8)).sha
    with pytest.raises(Conflict):
        hub.publications.publish(repository, "v1", later, hub.who("ada"))
    with pytest.raises(Conflict):
        hub.refs.create_tag(repository, "v1", later)
    for who in (hub.who("ada"), replace(hub.who("root"), scope="write"), None):
        with pytest.raises(Forbidden):
            hub.refs.delete_tag(repository, "v1", who)
    assert hub.registry.get("ada/Onco@v1").number == 1
    hub.refs.delete_tag(repository, "v1", hub.who("root"))
    assert hub.publications.list(repository) == []
    with pytest.raises(UnknownCard):
        hub.registry.get("ada/Onco")


def test_a_version_with_another_tag_outlives_a_deleted_one(hub: Stand, repository: Repository) -> None:
    version = publish(hub, repository, card(), "v1")
    publish(hub, repository, {"a.txt": b""}, "stable")
    hub.refs.delete_tag(repository, "v1", hub.who("root"))
    assert hub.registry.get("ada/Onco").sha256 == version
    assert [p.tag for p in hub.publications.list(repository)] == ["stable"]


def test_a_moved_card_is_published_under_its_new_name_and_a_deleted_one_not_at_all(
    hub: Stand, repository: Repository
) -> None:
    version = publish(hub, repository, card(), "v1")
    moved = hub.repositories.move(repository, "eve/cardio")
    assert hub.registry.get("eve/cardio@v1").sha256 == version
    with pytest.raises(UnknownCard):
        hub.registry.get("ada/Onco")
    assert [p.tag for p in hub.publications.list(moved)] == ["v1"]
    hub.repositories.delete(moved)
    with pytest.raises(UnknownCard):
        hub.registry.get("eve/cardio")
    assert hub.publications.summarize([moved.id]) == {}


def finding(factuality: float | None) -> AuditFinding:
    return AuditFinding("minilm", None, "atlas", None, "asked", "ef" * 32, 7, None, factuality, "{}")


def test_marks_tell_the_figures_of_the_exam_from_those_of_the_latest_audit(
    hub: Stand, repository: Repository
) -> None:
    publish(hub, repository, card(factuality=0.1), "v1")
    version = publish(hub, repository, card(factuality=0.4), "v2")
    plain = hub.make("ada/plain")

    def mark() -> Version:
        (only,) = hub.publications.summarize([repository.id, plain.id, 999]).values()
        assert (only.reference, only.sha256, only.description) == ("ada/Onco@v2", version, "Tumours")
        assert only.declared == DeclaredFigures(0.9, 0.4, coverage=1.0)
        return only

    assert (mark().verified, mark().quarantine) == (None, None)
    hub.registry.quarantine.set(0.5)
    assert (mark().verified, mark().quarantine) == (None, QuarantineReason(0.4, 0.5, coverage=1.0))
    stored = hub.registry.get("ada/Onco@v2")
    for score in (0.2, 0.7, None):
        hub.registry.audits.add(stored, finding(score))
    verified = mark().verified
    assert verified is not None
    assert (verified.factuality, verified.evidence, verified.checker) == (0.7, "atlas", "minilm")
    assert mark().quarantine is None
    assert hub.publications.summarize([]) == {}
    versions = hub.registry.versions("ada/Onco")
    assert [version.reference for version in versions if version.quarantine] == ["ada/Onco@v1"]


def test_summaries_of_a_page_take_three_queries(tmp_path: Path) -> None:
    with stand(tmp_path) as hub:
        ids = [hub.make(f"ada/{n}").id for n in range(5)]
        for id_ in ids:
            publish(
                hub, hub.repositories.get("model", f"ada/{ids.index(id_)}"), card(factuality=id_ / 10), "v1"
            )
        with recorded_statements() as statements:
            assert len(hub.publications.summarize(ids)) == 5
        assert len([query for query in statements if query != "BEGIN"]) == 3


def test_a_commit_that_takes_the_card_away_leaves_what_was_published(
    hub: Stand, repository: Repository
) -> None:
    publish(hub, repository, card(), "v1")
    hub.commit(repository, {}, Delete(MANIFEST))
    assert hub.registry.get("ada/Onco@v1").number == 1
    assert "kcard" not in hub.repositories.get("model", "ada/onco").tags


def test_a_commit_of_another_repository_is_not_published(hub: Stand, repository: Repository) -> None:
    other = hub.make("ada/other")
    sha = hub.commit(other, card()).sha
    with pytest.raises(NotFound):
        hub.publications.publish(repository, "v1", sha, hub.who("ada"))
