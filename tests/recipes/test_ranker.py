"""The ranker and the static embeddings: what training saves is what kcard loads."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from recipes.ranker import train as ranking
from recipes.static import train as static

from kcard.embedded import minilm
from kcard.embedded import static_embeddings as offline_static
from kcard.embedded.reader import best_window, load_ranker, rank_all

QUESTION = "Who built the mill?"
PAIRS = [(QUESTION, "Osric & Sons built the mill."), (QUESTION, "Oil burns."), ("When?", "In 1871.")]


@pytest.mark.numeric
def test_a_ranker_scores_alike_as_it_was_trained_and_as_it_is_shipped_but_for_rounding(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    model, head = ranking.fresh()
    model.eval()
    ranking.save(model, head, tmp_path)
    with torch.inference_mode():
        expected = ranking.score(model, head, PAIRS).numpy()
    np.testing.assert_allclose(rank_all(PAIRS, load_ranker(tmp_path)), expected, atol=0.1)


def test_the_shipped_ranker_prefers_what_answers() -> None:
    right, wrong, _ = rank_all(PAIRS)
    assert right > wrong + 2


def test_a_batch_has_the_passage_of_each_question_first_and_wrong_ones_of_its_source() -> None:
    names = ["Osric", "Halden", "Marrow", "Callow", "Tarn", "Wick", "Brae", "Holm", "Fenn", "Yarrow"]
    pairs = [
        static.Pair(
            f"Who built the mill of {name}?", f"The mill of {name} was built by {other}.", other, "mills"
        )
        for name, other in zip(names, reversed(names), strict=True)
    ] * 2
    batch = next(ranking.batches(pairs, random.Random(0)))
    assert len(batch) == ranking.QUESTIONS
    for question, (own, *others) in batch:
        assert question.split()[-1].removesuffix("?") in own
        assert 1 <= len(others) <= ranking.NEGATIVES
        assert not any(own.rsplit(maxsplit=1)[-1].removesuffix(".") in other for other in others)


@pytest.mark.parametrize("place", [0, 60, 150])
def test_the_window_of_a_passage_is_where_it_speaks_of_the_question(place: int) -> None:
    question, filler, answer = minilm.words().ids(
        ["lighthouse keeper", "rain " * 200, "the lighthouse keeper"]
    )
    passage = [*filler[:place], *answer, *filler[place:]]
    start = best_window(question, passage, 32)
    assert start <= place + 1
    assert place + len(answer) <= start + 32
    assert best_window(question, passage[:32], 32) == 0


def test_a_table_learns_that_a_question_and_its_passage_are_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    table = torch.randn(30522, offline_static.DIMENSIONS)
    table[minilm.CLS] = 0
    words = ["mill", "oak", "trout", "moon", "lamp", "river", "hound", "king"]
    pairs = [static.Pair(f"tell me of the {w}", f"{w} stands here", "", "test") for w in words]
    monkeypatch.setattr(static, "BATCH", len(pairs))
    monkeypatch.setattr(static, "WARM", 1)
    trained = static.train(table, pairs, 20, 0)
    assert not trained[minilm.CLS].any()
    static.save(trained, tmp_path)
    monkeypatch.setattr(offline_static, "WEIGHTS", tmp_path)
    offline_static.load_table.cache_clear()
    try:
        near = (
            offline_static.embed([p.question for p in pairs])
            @ offline_static.embed([p.passage for p in pairs]).T
        )
    finally:
        offline_static.load_table.cache_clear()
    assert (near.argmax(1) == np.arange(len(pairs))).all()


@pytest.mark.numeric
def test_static_vectors_have_unit_length_and_depend_on_their_text_alone() -> None:
    texts = ["Which dog is big?", "", "oak", "Which dog is big?"]
    vectors = offline_static.embed(texts)
    assert vectors.shape == (4, offline_static.DIMENSIONS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1, 1], atol=1e-5)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(offline_static.embed([text])[0], vector, atol=1e-6)
