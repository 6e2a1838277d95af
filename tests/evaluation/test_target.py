"""An exam of fewer questions does not take the place of a larger one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kcard.api.exam import exam
from kcard.cards.card import Card
from kcard.evaluation.exam import has_fewer_questions
from kcard.evaluation.records import EXAM, Exam, ExamRun, read_exam
from kcard.evaluation.target import Target
from kcard.interfaces import Array, Checker, Pair
from kcard.training.train import train

LARGE = Exam("rivers", "0", ExamRun("asked", "", 40, "", None), limit=100)


class Always(Checker):
    """A checker that supports everything."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        return np.ones(len(pairs), dtype=np.float32)


@pytest.fixture
def card(tmp_path: Path) -> Card:
    corpus = tmp_path / "rivers.txt"
    rivers = ("Rhine", "Danube", "Seine", "Rhone", "Volga", "Vistula", "Tagus", "Dvina")
    corpus.write_text(
        "".join(f"The river {name} ends in the {name} Sea.\n" for name in rivers), encoding="utf-8"
    )
    return train(corpus, kind="retrieval", description="rivers", language="xx")


@pytest.mark.parametrize(("limit", "smaller"), [(99, True), (100, False), (200, False)])
def test_an_exam_is_smaller_that_asks_less(card: Card, limit: int, smaller: bool) -> None:
    (card.folder / EXAM).write_text(LARGE.to_json(), encoding="utf-8")
    assert has_fewer_questions(Target(card, []), replace(LARGE, limit=limit)) == smaller


def test_none_is_smaller_than_no_exam(card: Card) -> None:
    assert not has_fewer_questions(Target(card, []), replace(LARGE, limit=1))
    (card.folder / EXAM).write_text(replace(LARGE, own=None).to_json(), encoding="utf-8")
    assert not has_fewer_questions(Target(card, []), replace(LARGE, limit=1))


def test_the_card_keeps_its_larger_exam(card: Card, tmp_path: Path) -> None:
    large = exam(card.folder, limit=6, checker=Always())
    assert read_exam(card.folder) == large
    small = exam(card.folder, limit=3, checker=Always())
    assert small.limit == 3
    assert read_exam(card.folder) == large
    other = exam(card.folder, limit=3, checker=Always(), output=tmp_path / "small.json")
    assert Exam.from_json((tmp_path / "small.json").read_text(encoding="utf-8")) == other
    again = exam(card.folder, limit=7, checker=Always())
    assert read_exam(card.folder) == again
