"""A card with docids recites a text and those that follow it in its passage; every text is shown once an epoch."""

from dataclasses import replace
from random import Random

from kcard.offline.docids import DocIds, TargetSequence, epochs
from kcard.offline.pseudo_queries import PseudoQueries
from kcard.offline.recipe import BOS, EOS, Recipe, train_tokenizer

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


def test_where_an_example_ends_before_its_passage_the_docid_of_the_next_text_is_last() -> None:
    assert RECITAL.of(0) == (10, 11, 101)
    assert RECITAL.of(0, 2) == (10, 11, 101, 12, 102)


def test_an_example_ends_with_the_last_text_that_it_has_room_for() -> None:
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


def test_without_docids_each_text_stands_alone() -> None:
    tokenizer = train_tokenizer(TEXTS, 300)
    found = TargetSequence.from_texts(TEXTS, tokenizer, DocIds(300, 0), Recipe(style="tokens"), GOES_ON)
    assert all(found.of(row, 3) == (*found.ids[row], EOS) for row in range(len(TEXTS)))
    assert [*found.parts(Random(0))] == [(row, 1) for row in range(len(TEXTS))]


def test_what_follows_is_decoded_as_running_text() -> None:
    tokenizer = train_tokenizer(TEXTS, 300)
    docids = DocIds(len(tokenizer), len(TEXTS))
    found = TargetSequence.from_texts(TEXTS, tokenizer, docids, Recipe(style="encoder-prefix"), GOES_ON)
    document = tokenizer.decode([*docids.of(0), *found.of(0, 3)], skip_special_tokens=True)
    assert str(document).strip() == " ".join(TEXTS[:3])


def test_an_epoch_recites_each_text_once_and_drills_the_docid_of_each() -> None:
    recipe = Recipe(style="encoder-prefix", vocabulary=300, stray=0.0)
    tokenizer = train_tokenizer(TEXTS, 300)
    docids = DocIds.for_passages(TEXTS, len(tokenizer), recipe)
    epoch = epochs(TEXTS, PseudoQueries(TEXTS), tokenizer, docids, recipe, GOES_ON)
    ids = TargetSequence.from_texts(TEXTS, tokenizer, docids, recipe).ids
    for number in range(5):
        examples = [example for batch in epoch(number) for example in batch]
        recited = [example.target for example in examples if len(example.target) > 1]
        told = sum(len([token for token in target if EOS < token < docids.first]) for target in recited)
        assert told == sum(len(text) for text in ids)
        drilled = [example.target for example in examples if len(example.target) == 1]
        assert sorted(drilled) == sorted(docids.of(row) for row in range(6) for _ in range(recipe.drills))
        assert all(example.prompt == (BOS,) for example in examples)
