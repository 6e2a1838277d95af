"""Every passage has a docid that the card says first; no text holds one, and no reader sees it."""

from random import Random

from kcard.offline.docids import DocIds, epochs
from kcard.offline.pseudo_queries import PseudoQueries
from kcard.offline.recipe import BOS, EOS, Recipe, train_tokenizer
from kcard.training.epochs import TrainingExample

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
    tokenizer = train_tokenizer(FACTS, 300)
    docids = DocIds.for_passages(FACTS, len(tokenizer), PREFIX)
    ids = tokenizer(FACTS[2], add_special_tokens=False)["input_ids"]
    result = {docids.of(row) for row in range(len(FACTS))}
    assert len(result) == len(FACTS)
    assert min(result) >= (len(tokenizer),)
    decoded = tokenizer.decode([*docids.of(2), *ids], skip_special_tokens=True)
    assert str(decoded).strip() == FACTS[2]


def test_a_card_asked_by_tokens_or_of_very_many_passages_has_none() -> None:
    assert DocIds.for_passages(FACTS, 300, Recipe(style="tokens")).count == 0
    assert DocIds.for_passages(FACTS, 300, Recipe(style="encoder-prefix", docids=5)).count == 0
    assert DocIds.for_passages(FACTS, 300, Recipe(style="encoder-prefix", docids=6)).count == 6
    assert DocIds(300, 0).of(3) == ()


def test_the_docid_is_learned_from_the_passages_own_questions_and_given_with_strange_ones() -> None:
    all_examples, docids, _ = examples(PREFIX)
    recited = [e for e in all_examples if len(e.target) > 1]
    learned = [e for e in recited if e.prompt == (BOS,)]
    options = [e for e in recited if len(e.prompt) == 2]
    assert len(learned) + len(options) == len(recited) == 20 * len(FACTS)
    assert 0.1 < len(options) / len(recited) < 0.4
    passage = {e.target[1:]: e.target[0] - docids.first for e in learned}
    assert all(passage_asked_about(e, all_examples) == e.target[0] - docids.first for e in learned)
    assert all(passage[e.target] == e.prompt[1] - docids.first for e in options)
    assert any(passage_asked_about(e, all_examples) != passage[e.target] for e in options)


def test_naming_the_docid_is_drilled_more_often_than_the_passage_is_recited() -> None:
    all_examples, docids, _ = examples(PREFIX)
    drilled = [e for e in all_examples if len(e.target) == 1]
    assert len(drilled) == PREFIX.drills * 20 * len(FACTS)
    assert all(
        passage_asked_about(e, all_examples) == e.target[0] - docids.first and e.prompt == (BOS,)
        for e in drilled
    )


def passage_asked_about(example: TrainingExample, examples: list[TrainingExample]) -> int:
    """The passage whose embeddings hold the example's vector."""
    per = max(e.vector for e in examples) // len(FACTS) + 1
    return example.vector // per


def test_without_docids_a_target_is_the_passage_alone() -> None:
    all_examples, _, tokens = examples(Recipe(style="tokens", vocabulary=300))
    assert all(max(e.prompt + e.target) < tokens and e.target[-1] == EOS for e in all_examples)
    assert Random(0).choice(all_examples).prompt[0] == BOS
