"""Relevance: cosines of a real encoder, and the top k with ties in the given order."""

import numpy as np
import pytest

from kcard import plugins
from kcard.selectors.relevance import MiniLM, top

SELECTORS = [("relevance", "minilm"), ("pruners", "extractive"), ("checkers", "minilm")]
QUESTION = "Who won the senate race in Oregon?"
TEXTS = [
    "The Nile flows through Egypt.",
    "Ron Wyden was re-elected as senator for Oregon.",
    "Oregon is a state on the west coast.",
]


def test_the_text_that_answers_is_most_relevant() -> None:
    scores = MiniLM().scores(QUESTION, TEXTS)
    assert scores.shape == (3,)
    assert top(scores, 3) == [1, 2, 0]
    assert np.all(np.abs(scores) <= 1)


def test_a_text_scores_the_same_in_any_company() -> None:
    alone = [float(MiniLM().scores(QUESTION, [text])[0]) for text in TEXTS]
    together = MiniLM().scores(QUESTION, [*TEXTS, "word " * 200, TEXTS[0]])
    assert together[:3] == pytest.approx(alone, abs=1e-4)
    assert together[4] == together[0]


def test_no_texts_have_no_scores() -> None:
    assert MiniLM().scores(QUESTION, []).shape == (0,)


def test_a_text_that_is_the_question_has_cosine_one() -> None:
    assert MiniLM().scores(QUESTION, [QUESTION])[0] == pytest.approx(1.0, abs=1e-5)


def test_of_equal_scores_the_earlier_is_kept() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.9, 0.5], dtype=np.float32)
    assert top(scores, 3) == [1, 3, 0]
    assert top(scores, 9) == [1, 3, 0, 2, 4]
    assert top(scores, 0) == []


def test_the_offline_selectors_are_found_by_name() -> None:
    found = [plugins.load(f"kcard.{kind}", name) for kind, name in SELECTORS]
    assert [cls.__name__ for cls in found] == ["MiniLM", "Extractive", "MiniLMChecker"]
    assert all(cls() is not None for cls in found), "made without arguments"
