"""Texts that stay while questions come: scored in one go, as they are one by one, and kept on disk."""

import numpy as np
import pytest

from kcard import cache
from kcard.interfaces import Array
from kcard.offline import minilm
from kcard.selectors.relevance import Cosine, MiniLMRelevance
from kcard.text import Agreement, agreement

TEXTS = [
    "winners of the 2020 U.S. elections",
    "winners of the 2022 U.S. elections, 5th district",
    "moons of the planets",
    "winners of the 2020 U.S. elections",
    "1,200 recipes of 1874",
]
QUESTIONS = [
    "Who won in Ohio in 2022?",
    "Which moon is the 5th largest?",
    "Who cooks?",
    "1874 or 2020, 1,200?",
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("selector", [Cosine(), MiniLMRelevance()], ids=["cosine", "minilm"])
def test_texts_read_beforehand_score_as_they_do_when_they_come(
    selector: Cosine | MiniLMRelevance, question: str
) -> None:
    expected: Array = selector.scores(question, TEXTS)
    found = selector.precompute(TEXTS)(question)
    assert np.allclose(found, expected, atol=1e-6)
    assert found[0] == found[3]


@pytest.mark.parametrize("question", QUESTIONS)
def test_agreement_of_many_texts_is_that_of_each(question: str) -> None:
    assert Agreement(TEXTS)(question).tolist() == [agreement(question, text) for text in TEXTS]


def test_no_text_has_no_score() -> None:
    assert MiniLMRelevance().precompute([])("Who?").shape == (0,)


def test_a_matrix_is_read_back_without_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cache.matrix(TEXTS)
    cache.memory.clear()
    (cache.folder() / "values.sqlite").unlink(missing_ok=True)
    monkeypatch.setattr(minilm, "embed", refuse)
    assert (cache.matrix(TEXTS) == made).all()
    assert np.array_equal(made, cache.matrix(TEXTS))


def test_other_texts_or_another_order_are_another_matrix() -> None:
    made = cache.matrix(TEXTS[:3])
    assert np.array_equal(cache.matrix(TEXTS[2::-1]), made[::-1])


def test_a_damaged_matrix_is_made_again() -> None:
    made = cache.matrix(TEXTS)
    path = cache.folder() / "matrices.sqlite"
    path.write_bytes(path.read_bytes()[:5000] + b"?" * 3000)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    assert np.array_equal(cache.matrix(TEXTS), made)


def refuse(texts: object, tokens: int = 0) -> Array:
    raise AssertionError(f"{texts} were embedded before, {tokens}")
