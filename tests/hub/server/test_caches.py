"""What a listing and a description tell of a published card: its factuality, and whether it is quarantined."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from kcard.hub.server.caches import OF_FILE, OVERHEAD, Caches
from kcard.manifest import MANIFEST, Manifest
from tests.hub.exams import exam
from tests.hub.shared_hub import Shared, shared_hub

THRESHOLD = 0.5


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with shared_hub(tmp_path_factory.mktemp("hub"), exam_required=False) as shared:
        shared.hub.registry.quarantine.set(THRESHOLD)
        for name, factuality in {"good": 0.9, "bad": 0.2, "unmeasured": None}.items():
            shared.create(f"bob/{name}")
            sha = shared.put(f"bob/{name}", card(name, factuality)).sha
            repository = shared.hub.repositories.get("model", f"bob/{name}")
            shared.hub.publications.publish(repository, "v1", sha, shared.identity("bob"))
        shared.create("bob/plain")
        yield shared


def card(name: str, factuality: float | None) -> dict[str, bytes]:
    content = {"exam.json": exam(name, factuality), "config.json": b"{}"}
    digests = {path: hashlib.sha256(text).hexdigest() for path, text in content.items()}
    manifest = Manifest(name=name, description="Tumours", files=digests)
    return {**content, MANIFEST: manifest.to_json().encode()}


def describe_card(shared: Shared, name: str) -> Any:
    return shared.http().get(f"/api/models/bob/{name}").json()


def test_a_description_tells_version_factuality_and_quarantine(shared: Shared) -> None:
    description = describe_card(shared, "bad")
    text = card("bad", 0.2)[MANIFEST]
    assert description["kcard"] == {
        "reference": "bob/bad@v1",
        "version": hashlib.sha256(text).hexdigest(),
        "description": "Tumours",
        "declared": {"recall": 0.9, "factuality": 0.2, "coverage": 1.0, "fault": None},
        "verified": None,
        "unexamined": False,
        "quarantined": True,
        "quarantine": {
            "reason": "factuality 0.20 (self-declared, by the card's own exam, 100% of the documents covered) is below "
            "the hub's threshold of 0.5",
            "by": "self-declared",
            "factuality": 0.2,
            "threshold": 0.5,
            "coverage": 1.0,
            "audit": None,
            "at": None,
            "evidence": None,
        },
    }
    assert "quarantined" in description["tags"]


@pytest.mark.parametrize(
    ("name", "factuality", "quarantined"),
    [("good", 0.9, False), ("bad", 0.2, True), ("unmeasured", None, False)],
)
def test_every_listing_marks_what_is_quarantined(
    shared: Shared, name: str, factuality: float | None, quarantined: bool
) -> None:
    for query in ("", "full=true", "expand=likes", "expand=tags"):
        items = shared.http().get(f"/api/models?search={name}&{query}").json()
        [item] = [item for item in items if item["id"] == f"bob/{name}"]
        mark = item["kcard"]
        assert (mark["declared"]["factuality"], mark["verified"], mark["quarantined"]) == (
            factuality,
            None,
            quarantined,
        )
        assert ("quarantined" in item.get("tags", ())) == (quarantined and query != "expand=likes")


def test_what_published_nothing_has_no_mark(shared: Shared) -> None:
    assert describe_card(shared, "plain")["kcard"] is None


def test_the_real_client_sees_the_mark(shared: Shared) -> None:
    info = shared.api().model_info("bob/bad")
    assert "quarantined" in (info.tags or [])
    assert vars(info)["kcard"]["quarantined"] is True


def test_trees_are_kept_up_to_a_number_of_files(shared: Shared) -> None:
    shared.create("bob/large")
    names = [f"{number}.txt" for number in range(50)]
    shas = [shared.put("bob/large", dict.fromkeys(names, b"%d" % turn)).sha for turn in range(3)]
    repository = shared.hub.repositories.get("model", "bob/large")
    caches = Caches(shared.hub, most=2 * (OVERHEAD + 51 * OF_FILE))
    first = caches.tree(repository, shas[0])
    assert first == shared.hub.commits.tree(repository, shas[0])
    assert caches.tree(repository, shas[0]) is first
    for sha in shas[1:]:
        caches.tree(repository, sha)
    assert caches.tree(repository, shas[2]) is caches.tree(repository, shas[2])
    assert caches.tree(repository, shas[0]) is not first
