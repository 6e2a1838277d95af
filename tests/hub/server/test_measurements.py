"""What clients and pages tell of a card: figures, results, quarantine."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kcard.manifest import MANIFEST
from tests.hub.server.sample_cards import finding
from tests.hub.shared_hub import Shared, shared_hub
from tests.hub.stand import exam, sealed

NAME = "lab/onco"
RESULTS = """
- dataset:
    id: cais/hle
    task_id: default
  value: 99.9
  verifyToken: forged
  source:
    url: https://evil.example/run
"""
README = """---
model-index:
- name: onco
  results:
  - task: {type: question-answering}
    dataset: {name: atlas, type: kcard}
    metrics:
    - {type: factuality, value: 1.0, verified: true, verifyToken: forged}
---
# Onco
"""

HTML = {"Accept": "text/html"}


def card(name: str, factuality: float | None, recall: float = 0.9) -> dict[str, bytes]:
    return sealed({"exam.json": exam(name, factuality, recall=recall), "config.json": b"{}"}, name=name)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """lab/onco declares perfect figures; this hub measured a factuality of 0.3, below its threshold."""
    with shared_hub(tmp_path_factory.mktemp("hub"), exam_required=False) as shared:
        shared.hub.registry.quarantine.set(0.5)
        more = {"README.md": README.encode(), ".eval_results/hle.yaml": RESULTS.encode()}
        more[".eval_results/odd.yaml"] = b"- value: 1\n"
        shared.publish(NAME, more | card("onco", 1.0, recall=1.0))
        shared.hub.registry.audits.add(shared.hub.registry.get(NAME), finding(0.3))
        for name, factuality in {"good": 0.9, "bad": 0.2, "unmeasured": None}.items():
            shared.publish(f"bob/{name}", card(name, factuality))
        shared.create("bob/plain")
        yield shared


def describe_card(hub: Shared, name: str = NAME) -> Any:
    return hub.http().get(f"/api/models/{name}").json()


def test_what_the_publisher_says_and_what_the_hub_measured_are_told_apart(shared: Shared) -> None:
    mark = describe_card(shared)["kcard"]
    assert mark["declared"] == {"recall": 1.0, "factuality": 1.0, "coverage": 1.0, "fault": None}
    assert mark["verified"]["factuality"] == 0.3
    assert (mark["verified"]["evidence"], mark["verified"]["evidenceSha256"]) == ("atlas", "ab" * 32)
    assert (mark["quarantined"], mark["quarantine"]["by"]) == (True, "verified")
    assert mark["quarantine"]["reason"].endswith("against atlas) is below the hub's threshold of 0.5")


def test_only_the_hub_s_own_results_are_verified(shared: Shared) -> None:
    description = describe_card(shared)
    results = {(result["filename"], result["verified"]): result for result in description["evalResults"]}
    declared = results[".eval_results/hle.yaml", False]["data"]
    assert declared == {
        "dataset": {"id": "cais/hle", "task_id": "default"},
        "value": 99.9,
        "source": {"url": "https://evil.example/run"},
    }
    assert results[".eval_results/odd.yaml", False]["error"] == "a result needs dataset and value"
    verified = [result["data"] for result in description["evalResults"] if result["verified"]]
    assert [(data["dataset"]["id"], data["value"]) for data in verified] == [
        ("the card's own corpus", 0.8),
        ("atlas", 0.3),
    ]
    claims = [
        (metric["type"], metric["value"], metric.get("verified", False))
        for model in description["model-index"]
        for result in model["results"]
        for metric in result["metrics"]
    ]
    assert claims == [("factuality", 1.0, False), ("faithfulness", 0.8, True), ("factuality", 0.3, True)]
    assert "forged" not in json.dumps(description)


def test_the_page_has_the_word_beside_each_number(shared: Shared) -> None:
    page = shared.http().get(f"/{NAME}", headers=HTML).text
    for part in (
        '<p class="figure tone-poor">.30</p>',
        '<span class="badge">measured by this hub</span>',
        '<span class="badge">declared by its author</span>',
        '99.9 <span class="soft">self-declared</span>',
        ".eval_results/odd.yaml can't be read",
        "verified, by audit",
    ):
        assert part in page, part
    assert re.search(r">\.30</b>.*measured by this hub", shared.http().get("/", headers=HTML).text, re.S)


def test_the_real_client_reads_the_results(shared: Shared) -> None:
    info = shared.api().model_info(NAME, expand=["evalResults"])
    results = info.eval_results or []
    assert [(result.dataset_id, result.value) for result in results] == [
        ("cais/hle", 99.9),
        ("the card's own corpus", 0.8),
        ("atlas", 0.3),
    ]
    indexed = shared.api().model_info(NAME)
    assert indexed.card_data is not None
    assert [result.verified for result in indexed.card_data.eval_results or []] == [None]


def test_a_released_version_is_no_longer_quarantined(shared: Shared) -> None:
    name = "lab/released"
    shared.publish(name, card("released", 0.9))
    shared.hub.registry.audits.add(shared.hub.registry.get(name), finding(0.3))
    assert describe_card(shared, name)["kcard"]["verified"]["released"] is False
    shared.hub.registry.quarantine.release(shared.hub.registry.get(name), by="ada")
    mark = describe_card(shared, name)["kcard"]
    assert (mark["quarantined"], mark["quarantine"]) == (False, None)
    assert (mark["verified"]["released"], mark["verified"]["factuality"]) == (True, 0.3)


# What a listing and a description tell of a published card: its factuality, and whether it is quarantined.


def test_a_description_tells_version_factuality_and_quarantine(shared: Shared) -> None:
    description = describe_card(shared, "bob/bad")
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
    assert describe_card(shared, "bob/plain")["kcard"] is None
