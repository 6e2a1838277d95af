"""What a card with an encoder prefix learns about docids: from noised questions, what a retriever says of them."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize

from kcard.cards.models.prompting import SIZE, WordSketch
from kcard.offline.docids import DocIds, QuestionFeatures, QuestionWords, Retriever, docid_loss
from kcard.offline.recipe import Recipe

PASSAGES = [
    "The Rhine ends in the North Sea.",
    "The Danube ends in the Black Sea.",
    "Paris lies on the Seine.",
]
QUESTIONS = [
    text
    for passage, asked in zip(PASSAGES, ("Rhine end?", "Danube Black?", "Paris?"), strict=True)
    for text in (passage, asked)
]
SKETCH = WordSketch.of_corpus(PASSAGES)
WORDS = QuestionWords(SKETCH, QUESTIONS)
RECIPE = Recipe(style="encoder-prefix", dropped=(0.0, 0.0))


def questions(recipe: Recipe) -> QuestionFeatures:
    torch.manual_seed(0)
    embeddings = normalize(torch.randn(len(QUESTIONS), 384), dim=-1)
    return QuestionFeatures(embeddings, WORDS, Retriever(SKETCH, PASSAGES, embeddings[::2]), recipe)


def test_with_no_word_dropped_a_question_is_sketched_as_when_the_card_is_asked() -> None:
    found = questions(RECIPE).noised(range(len(QUESTIONS))).sketches
    assert torch.allclose(found, torch.from_numpy(SKETCH(QUESTIONS)), atol=1e-5)


def test_scores_are_those_of_bm25() -> None:
    mean = sum(len(passage.split()) for passage in PASSAGES) / 3
    asked = questions(RECIPE)
    assert isinstance(asked.retriever, Retriever)
    found = asked.retriever.bm25(asked.noised([QUESTIONS.index("Danube Black?")]).words)[0]
    length = 1.2 * (0.5 + 0.5 * 7 / mean)
    weight = 1 / math.sqrt(2)  # two words of equal idf
    assert found[1].item() == pytest.approx(2 * weight * 2.2 / (1 + length), rel=1e-5)
    assert found[[0, 2]].tolist() == [0, 0]


def test_words_are_dropped_at_the_rate_that_is_asked_for() -> None:
    torch.manual_seed(0)
    rows = torch.zeros(2000, dtype=torch.long)
    kept = len(WORDS.drop_words(rows, (0.3, 0.7)).stems) / (2000 * len(SKETCH.numbers_of(PASSAGES[0])))
    assert kept == pytest.approx(0.5, abs=0.02)
    bare = questions(replace(RECIPE, dropped=(1.0, 1.0))).noised([0, 1])
    assert bare.sketches.abs().max() == 0
    assert bare.features().shape == (2, 384 + SIZE)


def test_the_retriever_adds_bm25_to_the_cosine() -> None:
    recipe = replace(RECIPE, noise=0.0)
    asked = questions(recipe)
    assert isinstance(asked.retriever, Retriever)
    noised = asked.noised(range(len(QUESTIONS)))
    cosine = asked.embeddings @ asked.embeddings[::2].T
    expected = (10 * (cosine + 0.2 * asked.retriever.bm25(noised.words))).softmax(-1)
    assert torch.allclose(asked.retriever(noised, recipe), expected, atol=1e-5)


def test_noise_keeps_embeddings_at_unit_length_and_differs_from_question_to_question() -> None:
    asked = questions(replace(RECIPE, noise=0.05))
    noised = asked.noised([1] * 50).embeddings
    assert torch.allclose(noised.norm(dim=-1), torch.ones(50), atol=1e-5)
    near = noised @ asked.embeddings[1]
    assert near.max() > 0.95
    assert near.min() < 0.6


def test_the_loss_is_zero_where_docids_are_as_likely_as_they_are_meant() -> None:
    docids, near = DocIds(5, 3), torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    labels = torch.tensor([[6, -100], [7, 2]])  # a drill; a docid and a token of text
    meant = 0.7 * near + 0.3 * torch.tensor([[0.0, 1, 0], [0, 0, 1]])
    logits = torch.full((3, 8), -50.0)
    logits[0, 5:] = meant[0].log()
    logits[1, 5:] = meant[1].log()
    logits[2, 2] = 50.0
    assert docid_loss(logits, labels, near, 0.7, docids).item() == pytest.approx(0, abs=1e-5)
    assert docid_loss(logits, labels, near, 0.0, docids).item() > 0.1
    logits[1, 5:] = meant[0].log()
    assert docid_loss(logits, labels, near, 0.7, docids).item() > 0.1
