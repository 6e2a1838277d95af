"""The BM25 index: words of any script, repeatable bytes, no pickles, and nothing but an error from a damaged one."""

import json
from pathlib import Path

import bm25s
import numpy as np
import pytest

from kcard.errors import CardError
from kcard.index import Index
from kcard.text import passage_digest, words

FACTS = ["The Rhine rises in the Alps.", "The Thames rises in Kemble.", "?!", "The Rhine passes Basel."]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    Index.write(FACTS, tmp_path / "index")
    return tmp_path / "index"


def test_rows_are_found_best_first_and_only_where_a_word_is_shared(saved: Path) -> None:
    for index in (Index.build(FACTS), Index.load(saved)):
        assert len(index) == 4
        assert [row for row, _ in index.search("Where does the Rhine rise? In the Alps?", 9)] == [0, 3, 1]
        assert [row for row, _ in index.search("Basel", 1)] == [3]
        assert index.search("Basel", 0) == []
        assert index.search("Zanzibar", 9) == index.search("", 9) == index.search("?!", 9) == []


def test_more_rows_than_asked_for_are_cut_in_their_order() -> None:
    assert [row for row, _ in Index.build(["the same words"] * 50).search("same words", 3)] == [0, 1, 2]


def test_a_saved_index_scores_as_the_one_in_memory(saved: Path) -> None:
    question = "the Thames and the Rhine " * 4000
    assert Index.load(saved).search(question, 4) == Index.build(FACTS).search("The Rhine and Thames", 4)


def test_bm25s_reads_a_written_index_and_scores_every_row_equally(saved: Path) -> None:
    texts = [f"{'the ' * (n % 4)}word{n % 7} and word{n % 3} of {n}" for n in range(60)] + FACTS
    Index.write(texts, saved.parent / "other")
    ours = Index.load(saved.parent / "other")
    theirs = bm25s.BM25.load(saved.parent / "other", mmap=True, show_progress=False)
    for question in ("the word3", "word1 and 17", "Rhine", "of the and word2 59 the Alps"):
        ids = sorted({theirs.vocab_dict[word] for word in words(question) if word in theirs.vocab_dict})
        assert np.array_equal(ours.scores(question), theirs.get_scores_from_ids(ids))


def test_an_index_of_other_scores_is_refused(saved: Path) -> None:
    path = saved / "params.index.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"lucene"', '"bm25l"'), encoding="utf-8")
    with pytest.raises(CardError, match="its scores are of the method 'bm25l'"):
        Index.load(saved)


def test_the_best_possible_score_makes_scores_of_two_indexes_comparable() -> None:
    near, far = Index.build(FACTS), Index.build([f"The number {n} is a number." for n in range(9)])
    question = "The Rhine rises in the Alps"
    shares = [index.search(question, 1)[0][1] / index.best_possible(question) for index in (near, far)]
    assert shares[0] > 0.8
    assert shares[1] < 0.1
    assert near.best_possible("") == Index.build(["?!"]).best_possible(question) == 0.0


def test_texts_without_a_word_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no text has a word"):
        Index.write(["?!", "..."], tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_equal_texts_give_equal_bytes_and_no_pickle(saved: Path, tmp_path: Path) -> None:
    Index.write(tuple(FACTS), tmp_path / "again")
    names = sorted(path.name for path in saved.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "again").iterdir())
    for name in names:
        assert (saved / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
        if name.endswith(".npy"):
            np.load(saved / name, allow_pickle=False)
        else:
            json.loads((saved / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["data.csc.index.npy", "params.index.json", "vocab.index.json"])
@pytest.mark.parametrize("damage", ["cut", "missing", "empty"])
def test_a_damaged_file_is_one_clear_error(saved: Path, name: str, damage: str) -> None:
    path = saved / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(CardError, match="is not an index or is damaged") as caught:
        Index.load(saved)
    assert "\n" not in str(caught.value)


def test_arrays_that_reach_outside_of_the_corpus_and_pickles_are_refused(saved: Path) -> None:
    path = saved / "indices.csc.index.npy"
    rows = np.load(path)
    pickled = np.array([{"a": 1}], dtype=object)
    outside = (np.full_like(rows, 99), np.full_like(rows, -1))
    for wrong in (*outside, rows.astype(np.float32), rows[:-1], pickled):
        np.save(path, wrong, allow_pickle=True)
        with pytest.raises(CardError, match="is not an index or is damaged"):
            Index.load(saved)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The 7th, in O'Brien's", ["the", "7th", "in", "o", "brien", "s"]),
        ("今天天气", ["今", "天", "天", "气"]),
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा"]),
        ("Straße café", ["straße", "café"]),
        ("cafe\u0301", ["café"]),
        ("Привет, мир!", ["привет", "мир"]),
        ("السَّلامُ عليكم", ["السَّلامُ", "عليكم"]),
        ("한국어 문장", ["한국어", "문장"]),
    ],
)
def test_words_are_those_of_any_script(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_the_digest_of_a_passage_sees_its_words_not_its_spaces_or_case() -> None:
    assert passage_digest("The  Rhine\nrises.") == passage_digest("the rhine rises.")
    assert passage_digest("caf\u00e9") == passage_digest("cafe\u0301")
    assert passage_digest("The Rhine rises.") != passage_digest("The Rhine falls.")
