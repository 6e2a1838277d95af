"""Embeddings of texts that stay while questions come: kept on disk as a matrix."""

import numpy as np
import pytest

from kcard import cache
from kcard.offline import minilm

TEXTS = [
    "winners of the 2020 U.S. elections",
    "winners of the 2022 U.S. elections, 5th district",
    "moons of the planets",
    "winners of the 2020 U.S. elections",
    "1,200 recipes of 1874",
]


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


def refuse(texts: object, tokens: int = 0) -> None:
    raise AssertionError(f"{texts} were embedded before, {tokens}")
