from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from kcard.api.exam import browse
from kcard.cards.card import finish
from kcard.errors import UnknownCard, UsageError
from kcard.evaluation.browse import SORTS
from kcard.evaluation.records import EXAM, Distribution, Exam, ExamRun, Judged, Mean
from kcard.hub.registry import Hub
from kcard.io import write_text
from kcard.manifest import Base, Manifest, seal
from kcard.types import Source

NASTY = 'won <script>alert("x")</script> & moved on'


def make_exam(card: str, recall: float, faithful: list[float], factual: list[float | None] | None) -> Exam:
    judged = Judged("Who won?", "Wyden", NASTY, True, 0.9, None, Source("He won.", "a<b>.txt", 3))
    own = ExamRun(
        asked="held-out forms",
        sha256="ab" * 32,
        questions=10,
        questions_sha256="ef" * 32,
        recall=Mean(recall, recall - 0.05, recall + 0.05),
        lift=Mean(recall - 0.5, recall - 0.6, recall - 0.4),
        base=Mean(0.5, 0.45, 0.55),
        faithfulness=Distribution.of(faithful),
        factuality=None if factual is None else Distribution.of(factual),
    )
    return Exam(
        card=card,
        kcard="0.1.0",
        own=own,
        given=replace(own, asked="seas.jsonl", recall=Mean(0.25, 0.2, 0.3)) if factual else None,
        base="chance",
        checker="tests.WordOverlap",
        evidence=None if factual is None else "atlas.txt",
        evidence_sha256=None if factual is None else "cd" * 32,
        best=(judged,),
        worst=(replace(judged, recalled=False, faithfulness=0.1), replace(judged, faithfulness=0.8)),
    )


def publish(hub: Hub, folder: Path, manifest: Manifest, exam: Exam | str | None, weights: int = 10) -> None:
    folder.mkdir()
    adapter = manifest.method == "lora"
    (folder / ("adapter_config.json" if adapter else "config.json")).write_text("{}")
    tensors = save({"weight": np.zeros(weights, np.uint8)})
    (folder / ("adapter_model.safetensors" if adapter else "model.safetensors")).write_bytes(tensors)
    (folder / "tokenizer.json").write_text(manifest.name)
    finish(folder, manifest, [Source("He won.")])
    if exam is not None:
        write_text(folder / EXAM, exam if isinstance(exam, str) else exam.to_json())
        seal(folder, manifest)
    hub.publish(folder)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """Three cards, two of them with exams, which no test changes."""
    folder = tmp_path_factory.mktemp("browse")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCARD_HOME", str(folder / "home"))
        registry = Hub(folder / "home")
        oncology = Manifest(
            "oncology", "Tumours & genes", "biomedical/oncology", "lora", base=Base("facebook/opt-1.3b")
        )
        midterm = Manifest("midterm", "The 2022 U.S. midterm elections", "politics")
        rivers = Manifest("rivers", "Rivers of <Europe>", "geography")
        exams = (
            make_exam("oncology", 0.6, [0.2, 0.4], [0.5, None]),
            make_exam("midterm", 0.9, [0.9, 1.0], None),
            None,
        )
        for manifest, exam, size in zip((oncology, midterm, rivers), exams, (5000, 10, 90_000), strict=True):
            publish(registry, folder / manifest.name, manifest, exam, size)
    return registry


def names(hub: Hub, **options: Any) -> list[str]:
    return [report.name for report in browse(hub=hub, **options)]


def test_every_card_is_reported_with_what_its_exam_found(hub: Hub) -> None:
    midterm, oncology, rivers = browse(hub=hub)
    assert (midterm.reference, midterm.domain, midterm.base) == ("midterm@v1", "politics", "from scratch")
    assert (midterm.recall, midterm.faithfulness, midterm.factuality) == (0.9, 0.95, None)
    assert midterm.lift == pytest.approx(0.4)
    assert (midterm.given, oncology.given, rivers.given, rivers.lift) == (None, 0.25, None, None)
    assert midterm.faithfulness_scores == (0.9, 1.0)
    assert midterm.factuality_scores == ()
    assert (oncology.base, oncology.kind, oncology.factuality) == ("facebook/opt-1.3b", "model", 0.5)
    assert oncology.exam is not None
    assert oncology.exam.factuality is not None
    assert oncology.exam.factuality.unknown == 1
    assert [judged.recalled for judged in (*oncology.best, *oncology.worst)] == [True, False, True]
    assert oncology.size > 5000
    assert (rivers.recall, rivers.faithfulness, rivers.best, rivers.note) == (None, None, (), "not examined")


def test_cards_are_filtered_by_name_text_domain_and_base(hub: Hub) -> None:
    assert names(hub, name="rivers") == ["rivers"]
    assert names(hub, name="midterm@v1") == ["midterm"]
    assert names(hub, domain="biomedical") == ["oncology"]
    assert names(hub, base="facebook/opt-1.3b") == ["oncology"]
    assert names(hub, text="midterm ELECTIONS") == ["midterm"]
    with pytest.raises(UnknownCard, match="river"):
        browse(hub=hub, name="riverz")


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("name", ["midterm", "oncology", "rivers"]),
        ("domain", ["oncology", "rivers", "midterm"]),
        ("base", ["oncology", "midterm", "rivers"]),
        ("size", ["rivers", "oncology", "midterm"]),
        ("recall", ["midterm", "oncology", "rivers"]),
        ("lift", ["midterm", "oncology", "rivers"]),
        ("faithfulness", ["midterm", "oncology", "rivers"]),
        ("factuality", ["oncology", "midterm", "rivers"]),
    ],
)
def test_sorting_puts_the_better_and_bigger_first_and_the_unknown_last(
    hub: Hub, sort: str, order: list[str]
) -> None:
    assert names(hub, sort=sort) == order


def test_an_unknown_sort_is_refused_with_the_known_ones(hub: Hub) -> None:
    with pytest.raises(UsageError, match="sort 'age' is unknown: choose one of name, domain"):
        browse(hub=hub, sort="age")  # type: ignore[arg-type]
    assert set(SORTS) == {"name", "domain", "base", "size", "recall", "lift", "faithfulness", "factuality"}


def test_one_card_with_a_foreign_exam_does_not_hide_the_others(tmp_path: Path) -> None:
    hub = Hub(tmp_path / "home")
    publish(hub, tmp_path / "d", Manifest("alien", "Other"), '{"format": 99}')
    publish(hub, tmp_path / "e", Manifest("rivers", "Rivers"), None)
    report, _ = browse(hub=hub)
    assert (report.name, report.exam) == ("alien", None)
    assert "not an exam of format 2" in report.note
