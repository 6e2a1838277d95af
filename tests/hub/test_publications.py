"""Cards as versions, by a tag or in a hub of one's own: whole, checked, for good, marked by what is known of them."""

import hashlib
import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import kcard
from kcard.errors import CardError, UnknownCard, UsageError
from kcard.hub import history
from kcard.hub.audits import AuditFinding
from kcard.hub.db.models import Repository, Version
from kcard.hub.errors import Conflict, Invalid, NotFound
from kcard.hub.figures import read_exam
from kcard.hub.services import HubServices
from kcard.hub.values import DeclaredFigures, Delete, QuarantineReason
from kcard.manifest import MANIFEST, Manifest, seal
from tests.hub.client.cards import rivers
from tests.hub.postgres import on_both
from tests.hub.stand import Stand, exam, sealed, stand


@pytest.fixture
def repository(hub: Stand) -> Repository:
    return hub.make("ada/Onco")


def card(kind: str = "full", factuality: object = 0.9, **files: bytes) -> dict[str, bytes]:
    """The files of a card; `factuality` None: without an exam."""
    content = {"model.safetensors": save({"w": np.ones(1, np.float32)}), "config.json": b"{}"}
    if factuality is not None:
        content["exam.json"] = exam("onco", factuality)
    content |= {name.replace("_", "."): text for name, text in files.items()}
    return sealed(content, kind=kind, domain="biomedical/oncology")


def publish(hub: Stand, repository: Repository, files: dict[str, bytes], tag: str) -> str:
    sha = hub.commit(repository, files).sha
    publication = hub.publications.publish(repository, tag, sha, hub.who("ada"), "hello")
    assert publication is not None
    return publication.version


@on_both
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
    (p,) = hub.publications.list(repository)
    assert (p.tag, p.version, p.number, p.author) == ("v1", version, 1, "ada")
    tags = {
        "kcard",
        "kcard:kind:model",
        "kcard:method:full",
        "domain:biomedical",
        "domain:biomedical/oncology",
    }
    assert tags <= set(hub.repositories.get("model", "ada/onco").tags)
    assert [(ref.name, ref.message) for ref in hub.refs.tags(repository)] == [("v1", "hello")]


def test_a_commit_without_a_card_and_a_dataset_publish_nothing(hub: Stand, repository: Repository) -> None:
    ada = hub.who("ada")
    assert hub.publications.publish(repository, "v1", repository.head or "", ada) is None
    data = hub.repositories.create("dataset", ada.account_id, "ada/Onco", by=ada)
    sha = hub.commit(data, card()).sha
    assert hub.publications.publish(data, "v1", sha, ada) is None
    with pytest.raises(NotFound):  # a commit of another repository
        hub.publications.publish(repository, "v1", sha, ada)
    assert hub.refs.tags(repository) == hub.refs.tags(data) == []


def test_the_same_card_under_another_tag_is_the_same_version(hub: Stand, repository: Repository) -> None:
    first = publish(hub, repository, card(), "v1")
    assert publish(hub, repository, {"notes.txt": b"beside the card"}, "stable") == first
    assert publish(hub, repository, card(factuality=0.8), "v2") != first
    published = [(p.tag, p.number) for p in hub.publications.list(repository)]
    assert published == [("v1", 1), ("stable", 1), ("v2", 2)]


# What a publisher can write without any exam.
FORGED = b'{"own":{"recall":{"mean":1},"factuality":{"mean":{"mean":1}}}}'
BROKEN = {
    "can't publish the card: .*unknown": {MANIFEST: b"{}", "a.txt": b""},
    "sha256": {**card(), "config.json": b'{"changed": 1}'},
    "is not in the commit": {k: v for k, v in card().items() if k != "config.json"},
    "exam.json is missing": card(factuality=None),
    "its format is not 2": card(factuality=None, exam_json=b"[]"),
    "list of scores between 0 and 1": card(factuality=7),
    "exam.json is not plausible": card(factuality=None, exam_json=FORGED),
    "run.py": sealed({"run.py": b"print(1)"}),
    "model.safetensors": sealed({"model.safetensors": b"\x80\x02}q\x00."}),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_card_that_is_not_whole_is_refused_and_there_is_no_tag(tmp_path: Path, reason: str) -> None:
    with stand(tmp_path) as hub:
        repository = hub.make("ada/onco")
        sha = hub.commit(repository, BROKEN[reason]).sha
        with pytest.raises(Invalid, match=reason):
            hub.publications.publish(repository, "v1", sha, hub.who("ada"))
        assert hub.refs.tags(repository) == []
        with pytest.raises(UnknownCard):
            hub.registry.versions("ada/onco")


def test_a_forged_exam_is_self_declared_and_not_plausible_and_verifies_nothing(tmp_path: Path) -> None:
    with stand(tmp_path, exam_required=False) as hub:
        repository = hub.make("ada/onco")
        publish(hub, repository, card(factuality=None, exam_json=FORGED), "v1")
        mark = hub.publications.summarize([repository.id])[repository.id]
        assert (mark.declared, mark.verified) == (DeclaredFigures(1, 1, "its format is not 2"), None)
        assert mark.unexamined
        version = hub.registry.get("ada/onco")
        assert (version.declared, version.verified, version.unexamined) == (mark.declared, None, True)


@pytest.mark.parametrize("kind", ["reference", "llm", "search", "retrieval"])
def test_what_nobody_trained_needs_no_exam_but_weights_without_one_are_marked(
    tmp_path: Path, kind: str
) -> None:
    with stand(tmp_path) as hub:
        repository, other = hub.make("ada/onco"), hub.make("ada/other")
        publish(hub, repository, card(kind, factuality=None), "v1")
        publish(hub, other, card(kind), "v1")
        marks = hub.publications.summarize([repository.id, other.id])
        assert (marks[repository.id].unexamined, marks[other.id].unexamined) == (True, False)


def test_a_moved_card_is_published_under_its_new_name_and_a_deleted_one_not_at_all(
    hub: Stand, repository: Repository
) -> None:
    version = publish(hub, repository, card(), "v1")
    publish(hub, repository, {"a.txt": b""}, "stable")
    hub.refs.delete_tag(repository, "stable", hub.who("root"))  # the version has another tag
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


@on_both
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


def test_a_commit_that_takes_the_card_away_leaves_what_was_published(
    hub: Stand, repository: Repository
) -> None:
    publish(hub, repository, card(), "v1")
    hub.commit(repository, {}, Delete(MANIFEST))
    assert hub.registry.get("ada/Onco@v1").number == 1
    assert "kcard" not in hub.repositories.get("model", "ada/onco").tags


# The exam that comes with a card: what it says, and why it can't be right.


CARD = Manifest(name="onco", description="Tumours")


def changed(change: Callable[[Any], object]) -> bytes:
    content = json.loads(exam("onco", 0.7))
    change(content)
    return json.dumps(content).encode()


def test_a_plausible_exam_says_recall_and_factuality() -> None:
    assert read_exam(exam("onco", 0.7), CARD) == DeclaredFigures(0.9, 0.7, coverage=1.0)
    assert read_exam(exam("onco"), CARD) == DeclaredFigures(0.9)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda e: e.update(format=1), "its format is not 2"),
        (lambda e: e.update(card="other"), "it belongs to card 'other', not 'onco'"),
        (lambda e: e.update(own=None), "no result on the card's own corpus"),
        (lambda e: e["own"].update(sha256="ab" * 32), "its corpus is not"),
        (lambda e: e["own"].update(questions=0), "questions is 0"),
        (lambda e: e["own"].update(questions=True), "questions is True"),
        (lambda e: e["own"].update(questions_sha256="x"), "questions_sha256"),
        (lambda e: e["own"].update(recall=None), "recall has no mean with an interval"),
        (lambda e: e["own"]["recall"].update(mean=0.95, high=1.0), "not a share of 10 questions"),
        (lambda e: e["own"]["recall"].update(low=0.95), "the interval of recall can't be right"),
        (lambda e: e["own"]["recall"].update(low=0.9, high=0.9), "the interval of recall can't be right"),
        (lambda e: e["own"]["recall"].update(high=1.5), "between 0 and 1"),
        (lambda e: e.update(evidence=None), "no name and sha256 of the evidence"),
        (lambda e: e.update(evidence_sha256="x"), "no name and sha256 of the evidence"),
        (lambda e: e["own"]["factuality"].update(scores=[]), "a mean without scores"),
        (lambda e: e["own"]["factuality"].update(scores=[2.0]), "scores between 0 and 1"),
        (lambda e: e["own"]["factuality"]["scores"].append(0.0), "not that of its scores"),
        (lambda e: e["own"].update(faithfulness={"mean": None}), "faithfulness has no list of scores"),
    ],
)
def test_what_can_t_be_right_is_named_and_still_said(change: Callable[[Any], object], fault: str) -> None:
    figures = read_exam(changed(change), CARD)
    assert fault in figures.fault


@pytest.mark.parametrize(
    "text",
    [b"", b"\xff", b"[]", b"null", b'{"own": [1]}', b'{"own": {"recall": 1}}', b"[" * 5000, b'"\\ud800"'],
)
def test_what_is_no_exam_says_nothing(text: bytes) -> None:
    figures = read_exam(text, CARD)
    assert (figures.recall, figures.factuality, bool(figures.fault)) == (None, None, True)


@pytest.mark.parametrize("value", ["1", True, None, [], 1.01, -0.1, 1e400])
def test_a_figure_that_is_none_is_not_shown(value: object) -> None:
    figures = read_exam(changed(lambda e: e["own"]["recall"].update(mean=value)), CARD)
    assert (figures.recall, figures.factuality) == (None, 0.7)


@pytest.mark.slow
def test_a_real_exam_is_plausible(tmp_path: Path) -> None:
    rivers_and_sources = [
        ("Rhine", "Alps"),
        ("Elbe", "Giant Mountains"),
        ("Oder", "Sudetes"),
        ("Inn", "Engadin"),
    ]
    sentences = [f"The {river} rises in the {place}." for river, place in rivers_and_sources]
    card = rivers(tmp_path / "card", *sentences)
    (tmp_path / "atlas.txt").write_text("\n\n".join(f"It is said that {text}" for text in sentences))
    taken = kcard.exam(card.folder, evidence=tmp_path / "atlas.txt", limit=5)
    assert taken.recall is not None
    assert taken.factuality is not None
    assert taken.factuality.mean is not None
    figures = read_exam((card.folder / "exam.json").read_bytes(), Manifest.read(card.folder))
    assert figures == DeclaredFigures(taken.recall.mean, taken.factuality.mean.mean)


# Cards that are published into a hub of one's own are repositories of the hub's own namespace.


NAME = "library/rivers"


@pytest.fixture
def local(tmp_path: Path, any_database: str | None) -> Iterator[HubServices]:
    """A hub with a card of two versions."""
    local = HubServices(tmp_path / "home", database_url=any_database)
    local.registry.publish(rivers(tmp_path / "one").folder, aliases=["stable"])
    local.registry.publish(rivers(tmp_path / "two", "The Rhine is long.").folder)
    yield local
    local.database.close()


def local_repository(local: HubServices, name: str = NAME) -> Repository:
    return local.repositories.get("model", name)


def local_refs(local: HubServices) -> tuple[dict[str, str], dict[str, str]]:
    """Branches and tags: the commit of each."""
    branches, tags = local.refs.branches(local_repository(local)), local.refs.tags(local_repository(local))
    return {ref.name: ref.sha for ref in branches}, {ref.name: ref.sha for ref in tags}


@on_both
def test_a_version_is_a_commit_and_a_tag_and_an_alias_a_branch(local: HubServices) -> None:
    branches, tags = local_refs(local)
    assert branches == {"main": tags["v2"], "stable": tags["v1"]}
    tree = local.commits.tree(local_repository(local), tags["v1"])
    assert {path: entry.sha256 for path, entry in tree.items()} == local.registry.get("rivers@v1").files
    history = local.commits.list(local_repository(local), tags["v2"])
    assert [commit.title for commit in history] == ["rivers v2", "rivers v1"]


def test_an_alias_moves_and_its_name_is_no_tag_s(local: HubServices) -> None:
    local.registry.alias("rivers@v2", "stable")
    assert local_refs(local)[0]["stable"] == local_refs(local)[1]["v2"]
    local.refs.create_tag(local_repository(local), "release", local_refs(local)[1]["v1"])
    with pytest.raises(Conflict, match="alias 'release' conflicts with a tag"):
        local.registry.alias("rivers@v2", "release")
    with pytest.raises(UsageError, match="reserved for the newest"):
        local.registry.alias("rivers@v1", "main")


def test_removing_the_newest_version_brings_back_the_one_before(local: HubServices) -> None:
    local.registry.remove("rivers@v2")
    branches, tags = local_refs(local)
    assert branches == {"main": tags["v1"], "stable": tags["v1"]}
    assert list(tags) == ["v1"]
    assert local_repository(local).head == tags["v1"]
    assert local.registry.gc() == []
    assert local.registry.verify() == []
    local.registry.remove("rivers")  # after the last version the repository is gone, too
    with pytest.raises(NotFound):
        local_repository(local)
    assert list(local.blobs.sizes()) == []


@on_both
def test_removing_an_older_version_leaves_the_newest_with_its_history(
    local: HubServices, tmp_path: Path
) -> None:
    first, second = (set(version.files.values()) for version in local.registry.versions("rivers"))
    gone = first - second
    local.registry.remove("rivers@v1")
    branches, tags = local_refs(local)
    assert branches == {"main": tags["v2"]}
    commits = local.commits.list(local_repository(local), tags["v2"])
    assert [commit.title for commit in commits] == ["rivers v2"]
    assert not any(local.blobs.holds(sha256) for sha256 in gone)
    assert local.registry.publish(rivers(tmp_path / "three", "The Rhine is cold.").folder).number == 3


def test_main_is_at_another_version_when_the_first_commit_goes(local: HubServices) -> None:
    first = local_refs(local)[1]["v1"]
    with local.database.write() as connection:
        history.point_branch(connection, local_repository(local).id, "main", first)
    local.registry.remove("rivers@v1")
    assert local_refs(local)[0] == {"main": local_refs(local)[1]["v2"]}


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("run.py", b"print(1)"),
        ("weights.txt", pickle.dumps({"weight": [0.0, 0.0]}, 2)),
        ("README.md", b"---\n[\n---\n"),
        ("config.json", b'{"auto_map": {"AutoModel": "modeling.Evil"}}'),
        ("adapter_config.json", b'{"auto_map": {"AutoModel": "modeling.Evil"}}'),
    ],
)
def test_a_card_with_a_file_that_no_client_could_upload_is_refused_by_name(
    local: HubServices, tmp_path: Path, path: str, content: bytes
) -> None:
    card = rivers(tmp_path / "odd", name="odd")
    (card.folder / path).write_bytes(content)
    seal(card.folder, card.manifest)
    with pytest.raises(CardError, match=re.escape(path)):
        local.registry.publish(card.folder)
    assert "odd" not in local.registry


def test_a_hub_of_cards_alone_still_gets_its_first_administrator(local: HubServices) -> None:
    first = local.accounts.create_first()
    assert first is not None
    assert first.admin
    assert local.accounts.create_first() is None
