"""The exam that comes with a card: what it says, and why it can't be right."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kcard
from kcard.hub.figures import read_exam
from kcard.hub.values import DeclaredFigures
from kcard.manifest import Manifest
from tests.hub.client.cards import rivers
from tests.hub.exams import exam

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
    sentences = [f"The {river} rises in the {place}." for river, place in RIVERS.items()]
    card = rivers(tmp_path / "card", *sentences)
    (tmp_path / "atlas.txt").write_text("\n\n".join(f"It is said that {text}" for text in sentences))
    taken = kcard.exam(card.folder, evidence=tmp_path / "atlas.txt", limit=5)
    assert taken.recall is not None
    assert taken.factuality is not None
    assert taken.factuality.mean is not None
    figures = read_exam((card.folder / "exam.json").read_bytes(), Manifest.read(card.folder))
    assert figures == DeclaredFigures(taken.recall.mean, taken.factuality.mean.mean)


RIVERS = {
    "Rhine": "Alps",
    "Elbe": "Giant Mountains",
    "Oder": "Sudetes",
    "Po": "Cottian Alps",
    "Inn": "Engadin",
}
