"""Vectors of large corpora: bytes in a file, as good as exact ones, and whole after an interruption."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kcard import cache
from kcard.embedded import minilm
from kcard.errors import CorpusError
from kcard.interfaces import Array
from kcard.selectors import dense
from kcard.selectors.dense import DenseCorpus
from kcard.types import Source

COUNT = 300
SOURCES = [Source(f"passage {i}") for i in range(COUNT)]


class Encoder:
    """Random vectors by text; it stops at the text `ends_at`, if one is given."""

    def __init__(self, ends_at: str = "") -> None:
        self.ends_at, self.texts = ends_at, 0

    def __call__(self, texts: Sequence[str]) -> Array:
        if self.ends_at in texts:
            raise KeyboardInterrupt
        self.texts += len(texts)
        rows = [np.random.default_rng([*text.encode()]).normal(size=32) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, 32)


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCARD_HOME", str(tmp_path))
    monkeypatch.setattr(dense, "WRITE_BATCH", 64)
    monkeypatch.setattr(dense, "SEARCH_BATCH", 50)


def rows(sources: Sequence[Source]) -> list[str]:
    return [source.text for source in sources]


def test_bytes_retrieve_what_exact_vectors_do() -> None:
    exact, rounded = (DenseCorpus(SOURCES, Encoder(), "m", exact=exact) for exact in (COUNT, 0))
    claims = [f"claim {n}" for n in range(40)]
    both = list(zip(exact.find_all(claims, 5), rounded.find_all(claims, 5), strict=True))
    assert sum(rows(a)[:1] == rows(b)[:1] for a, b in both) >= 39
    assert sum(len({*rows(a)} & {*rows(b)}) for a, b in both) >= 0.97 * 200
    for a, b in both:
        assert [s.score for s in b] == pytest.approx([s.score for s in a], abs=0.4)
    assert rows(rounded.find(claims[0], 5)) == rows(rounded.find_all(claims, 5)[0])
    assert len(rounded.find(claims[0], COUNT + 1)) == COUNT


def test_equal_passages_keep_their_order_over_blocks() -> None:
    equal = [Source("the same", line=n) for n in range(120)]
    assert [s.line for s in DenseCorpus(equal, Encoder(), "m", exact=0).find("x", 110)] == [*range(110)]


def test_vectors_are_kept_and_an_interrupted_run_goes_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        DenseCorpus(SOURCES, Encoder("passage 200"), "m", exact=0)
    again = Encoder()
    corpus = DenseCorpus(SOURCES, again, "m", exact=0)
    assert again.texts == COUNT - 192  # three blocks of 64 were written
    third = Encoder()
    kept = DenseCorpus(SOURCES, third, "m", exact=0)
    assert third.texts == 0
    assert rows(kept.find("claim", 9)) == rows(corpus.find("claim", 9))
    fourth = Encoder()
    DenseCorpus(SOURCES, fourth, "another model", exact=0)
    assert fourth.texts == COUNT


def test_a_block_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        DenseCorpus(SOURCES, Encoder("passage 200"), "m", exact=0)
    [codes] = (tmp_path / "cache" / "dense").rglob("codes.int8")
    with codes.open("ab") as stream:
        stream.write(b"half a block")
    whole = DenseCorpus(SOURCES, Encoder(), "m", exact=0).find("claim", 9)
    cache.memory.clear()
    assert rows(whole) == rows(DenseCorpus(SOURCES, Encoder(), "m2", exact=0).find("claim", 9))


def test_a_folder_that_takes_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "dense").write_text("a file")
    with pytest.raises(
        CorpusError, match=r"the vectors of notes can't be kept in .*: Not a directory; KCARD_HOME"
    ):
        DenseCorpus(SOURCES, Encoder(), "m", "notes", exact=0)


# Embeddings of texts that stay while questions come: kept on disk as a matrix.

DESCRIPTIONS = [
    "winners of the 2020 U.S. elections",
    "winners of the 2022 U.S. elections, 5th district",
    "moons of the planets",
    "winners of the 2020 U.S. elections",
    "1,200 recipes of 1874",
]


def test_a_matrix_is_read_back_without_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cache.matrix(DESCRIPTIONS)
    cache.memory.clear()
    (cache.folder() / "values.sqlite").unlink(missing_ok=True)
    monkeypatch.setattr(minilm, "embed", refuse)
    assert (cache.matrix(DESCRIPTIONS) == made).all()
    assert np.array_equal(made, cache.matrix(DESCRIPTIONS))


def test_other_texts_or_another_order_are_another_matrix() -> None:
    made = cache.matrix(DESCRIPTIONS[:3])
    assert np.array_equal(cache.matrix(DESCRIPTIONS[2::-1]), made[::-1])


def test_a_damaged_matrix_is_made_again() -> None:
    made = cache.matrix(DESCRIPTIONS)
    path = cache.folder() / "matrices.sqlite"
    path.write_bytes(path.read_bytes()[:5000] + b"?" * 3000)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    assert np.array_equal(cache.matrix(DESCRIPTIONS), made)


def refuse(texts: object, tokens: int = 0) -> None:
    raise AssertionError(f"{texts} were embedded before, {tokens}")
