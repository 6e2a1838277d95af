"""Every passage has a docid that the card says first; no text holds one, and no reader sees it."""

import math
from dataclasses import replace
from random import Random

import pytest
import torch
from torch.nn.functional import normalize

from kcard.cards.models.question_words import SIZE, WordSketch
from kcard.training.embedded.docids import (
    DocIds,
    QuestionFeatures,
    QuestionWords,
    Retriever,
    TargetSequence,
    docid_loss,
    epochs,
)
from kcard.training.embedded.pseudo_queries import PseudoQueries
from kcard.training.embedded.recipe import BOS, EOS, Recipe, train_tokenizer
from kcard.training.epochs import TrainingExample

pytestmark = pytest.mark.numeric

FACTS = [
    f"{name} carried {place} in the election." for name in ("Ada", "Bo", "Cy") for place in ("Ohio", "Iowa")
]
PREFIX = Recipe(style="encoder-prefix", vocabulary=300)


def examples(recipe: Recipe) -> tuple[list[TrainingExample], DocIds, int]:
    """All examples of twenty epochs, the docids, and how many tokens the tokenizer has."""
    tokenizer = train_tokenizer(FACTS, recipe.vocabulary)
    docids = DocIds.for_passages(FACTS, len(tokenizer), recipe)
    epoch = epochs(FACTS, PseudoQueries(FACTS), tokenizer, docids, recipe)
    return [e for n in range(20) for batch in epoch(n) for e in batch], docids, len(tokenizer)


def test_docids_lie_above_the_vocabulary_and_are_left_out_when_decoding() -> None:
    tokenizer = train_tokenizer(TEXTS, 300)
    docids = DocIds.for_passages(TEXTS, len(tokenizer), PREFIX)
    result = {docids.of(row) for row in range(len(TEXTS))}
    assert len(result) == len(TEXTS)
    assert min(result) >= (len(tokenizer),)
    found = TargetSequence.from_texts(TEXTS, tokenizer, docids, PREFIX, GOES_ON)
    document = tokenizer.decode([*docids.of(0), *found.of(0, 3)], skip_special_tokens=True)
    assert str(document).strip() == " ".join(TEXTS[:3])


def test_a_card_asked_by_tokens_or_of_very_many_passages_has_none() -> None:
    assert DocIds.for_passages(FACTS, 300, Recipe(style="tokens")).count == 0
    assert DocIds.for_passages(FACTS, 300, Recipe(style="encoder-prefix", docids=5)).count == 0
    assert DocIds.for_passages(FACTS, 300, Recipe(style="encoder-prefix", docids=6)).count == 6
    assert DocIds(300, 0).of(3) == ()


def test_the_docid_is_learned_from_the_passages_own_questions_and_given_with_strange_ones() -> None:
    all_examples, docids, _ = examples(PREFIX)
    recited = [e for e in all_examples if len(e.target) > 1]
    drilled = [e for e in all_examples if len(e.target) == 1]
    learned = [e for e in recited if e.prompt == (BOS,)]
    options = [e for e in recited if len(e.prompt) == 2]
    assert len(drilled) == PREFIX.drills * 20 * len(FACTS)
    assert len(learned) + len(options) == len(recited) == 20 * len(FACTS)
    assert 0.1 < len(options) / len(recited) < 0.4
    passage = {e.target[1:]: e.target[0] - docids.first for e in learned}
    for example in (*learned, *drilled):
        assert example.prompt == (BOS,)
        assert passage_asked_about(example, all_examples) == example.target[0] - docids.first
    assert all(passage[e.target] == e.prompt[1] - docids.first for e in options)
    assert any(passage_asked_about(e, all_examples) != passage[e.target] for e in options)


def passage_asked_about(example: TrainingExample, examples: list[TrainingExample]) -> int:
    """The passage whose embeddings hold the example's vector."""
    per = max(e.vector for e in examples) // len(FACTS) + 1
    return example.vector // per


def test_without_docids_a_target_is_the_passage_alone() -> None:
    all_examples, _, tokens = examples(Recipe(style="tokens", vocabulary=300))
    assert all(max(e.prompt + e.target) < tokens and e.target[-1] == EOS for e in all_examples)
    assert Random(0).choice(all_examples).prompt[0] == BOS


# What a card with an encoder prefix learns about docids: from noised questions, what a retriever says of them.

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


# A card with docids recites a text and those that follow it in its passage; every text is shown once an epoch.

TEXTS = [
    "Ada built the mill.",
    "It stood by the river.",
    "It burned in 1802.",
    "Cy sold the ferry.",
    "Bo rang the bell.",
    "Nobody heard it.",
]
GOES_ON = [True, True, False, False, True, False]
IDS = [(10, 11), (12,), (13, 14), (15,), (16,), (17, 18)]
DOCIDS = DocIds(first=100, count=6)
RECITAL = TargetSequence(IDS, GOES_ON, DOCIDS, room=60, most=3)


def test_a_text_is_followed_by_the_next_ones_of_its_passage_each_after_its_docid() -> None:
    assert RECITAL.of(0, 3) == (10, 11, 101, 12, 102, 13, 14, EOS)
    assert RECITAL.of(1, 3) == (12, 102, 13, 14, EOS)
    assert RECITAL.of(3, 3) == (15, EOS)
    # Where an example ends before its passage, the docid of the next text is last.
    assert RECITAL.of(0) == (10, 11, 101)
    assert RECITAL.of(0, 2) == (10, 11, 101, 12, 102)
    assert replace(RECITAL, room=7).of(0, 3) == (10, 11, 101, 12, 102)


def test_every_text_is_in_one_part_and_passages_are_parted_anew_each_time() -> None:
    rng, seen = Random(0), set()
    for _ in range(50):
        parts = tuple(RECITAL.parts(rng))
        rows = [row for first, count in parts for row in range(first, first + count)]
        assert rows == [*range(len(IDS))]
        assert all(GOES_ON[row] for first, count in parts for row in range(first, first + count - 1))
        assert max(count for _, count in parts) <= RECITAL.most
        seen.add(parts)
    assert len(seen) == 4 * 2  # four ways for the first passage, two for the last


def test_an_epoch_recites_each_text_once_and_drills_the_docid_of_each() -> None:
    recipe = Recipe(style="encoder-prefix", vocabulary=300, stray=0.0)
    tokenizer = train_tokenizer(TEXTS, 300)
    docids = DocIds.for_passages(TEXTS, len(tokenizer), recipe)
    epoch = epochs(TEXTS, PseudoQueries(TEXTS), tokenizer, docids, recipe, GOES_ON)
    ids = TargetSequence.from_texts(TEXTS, tokenizer, docids, recipe).ids
    for number in range(5):
        examples = [example for batch in epoch(number) for example in batch]
        recited = [token for e in examples if len(e.target) > 1 for token in e.target]
        assert len([token for token in recited if EOS < token < docids.first]) == sum(map(len, ids))
        drilled = [e.target for e in examples if len(e.target) == 1]
        assert sorted(drilled) == sorted([docids.of(row) for row in range(6)] * recipe.drills)
        assert all(example.prompt == (BOS,) for example in examples)
