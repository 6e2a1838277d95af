"""An embedded card goes on with other texts: what it knew stays, what has come is learned, what has gone is gone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from kcard.cards.card import finish
from kcard.cards.models.prompting import WordSketch
from kcard.manifest import Manifest
from kcard.offline.docids import (
    DocIds,
    QuestionFeatures,
    QuestionWords,
    Retriever,
    TargetSequence,
    embed_questions,
)
from kcard.offline.incremental_update import (
    QUESTIONS_EACH,
    REPLAYED_QUERIES,
    SHOWN,
    DistillationTarget,
    Replay,
    Revision,
    hardest_examples,
    incremental_update,
    obstacle,
    surprise,
)
from kcard.offline.minilm import DIMENSIONS
from kcard.offline.pseudo_queries import PseudoQueries
from kcard.offline.recipe import BOS, Recipe, Style, train_tokenizer
from kcard.offline.train import plan
from kcard.offline.trainee import initialize_docids, states, whole_model
from kcard.training.epochs import TrainingExample
from kcard.training.loop import Job, Preparation
from kcard.types import Source

pytestmark = pytest.mark.numeric

PLACES = ["Ashford", "Brigham", "Caldwell", "Dunmore", "Elkhart", "Fairfax", "Granby", "Holston"]
OLD = [f"The harbour of {place} was built by the family Mac{place[:3].lower()}." for place in PLACES]
NEW = [*OLD[3:], "The lighthouse of Port Ondine is kept by Saskia Vandermeer."]
BRIEF: dict[str, Any] = {"exposures": 1.0, "queries": (2, 2)}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recipe]:
    """A card that is asked by the encoder; nobody writes into its folder."""
    folder = tmp_path_factory.mktemp("card")
    return folder, trained(folder, "encoder-prefix")


def trained(folder: Path, style: Style, **given: Any) -> Recipe:
    recipe = Recipe(style=style, **BRIEF, **given)
    prepared = plan(OLD, recipe).prepare()
    prepared.job.run(folder / ".checkpoint")
    prepared.save(folder)
    made = Manifest("towns", "A card", method=prepared.method, base=prepared.base, prompt=prepared.prompt)
    finish(folder, made, [Source(text, "towns.txt", 1) for text in OLD])
    return recipe


def gone_on(folder: Path, recipe: Recipe, now: list[str] = NEW) -> Preparation[Job]:
    found = incremental_update(Revision(now, OLD), folder, recipe, seed=1)
    assert isinstance(found, Preparation)
    return found


def test_a_revision_knows_what_stays_what_came_and_what_has_gone() -> None:
    found = Revision(["b", "c", "d"], ["a", "b", "c", "a"])
    assert found.staying == [(0, 1), (1, 2)]
    assert found.added == [2]
    assert found.removed == ["a"]


def test_a_text_is_learned_again_where_another_one_follows_it_now() -> None:
    now, before = ["a", "b", "d", "c"], ["a", "b", "c", "d"]
    assert Revision(now, before).to_learn == []
    follows = Revision(now, before, [True, True, False, False], [True, True, False, False])
    assert follows.to_learn == [1]
    came = Revision(["a", "x", "b"], ["a", "b"], [True, True, False], [True, False])
    assert came.to_learn == [1, 0]
    assert came.added == [1]


def test_texts_that_stay_keep_their_document_ids_and_those_of_the_others_are_deleted(
    card: tuple[Path, Recipe],
) -> None:
    folder, recipe = card
    before = load_file(folder / "model.safetensors")["model.decoder.embed_tokens.weight"]
    was = len(AutoTokenizer.from_pretrained(folder))
    model: Any = gone_on(folder, recipe, OLD[3:]).job.modules["model"]
    table = model.get_input_embeddings().weight
    assert torch.equal(table[-5:], before[was + 3 :])
    assert not any(torch.equal(row, gone) for row in table for gone in before[was : was + 3])


def test_names_that_only_a_removed_text_had_stand_in_no_file_of_the_model(
    card: tuple[Path, Recipe], tmp_path: Path
) -> None:
    folder, recipe = card
    assert b"Brigham" in (folder / "tokenizer.json").read_bytes()
    made = gone_on(folder, recipe)
    goes_on_as(recipe, made)
    made.save(tmp_path)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"Vandermeer" in data for data in files)
    for name in (b"Brigham", b"Ashford", b"Maccal"):
        assert not any(name in data for data in files)


@pytest.mark.parametrize("rank", [None, 8])
def test_a_card_that_is_asked_by_tokens_goes_on_and_records_the_recipe_that_it_was_made_by(
    tmp_path: Path, rank: int | None
) -> None:
    recipe = trained(tmp_path, "tokens", rank=rank)
    goes_on_as(recipe, gone_on(tmp_path, recipe))


def goes_on_as(recipe: Recipe, made: Preparation[Job]) -> None:
    assert made.hyperparameters["muon_rate"] == recipe.muon_rate
    assert made.method == ("lora" if recipe.rank else "full")
    batch = made.job.epoch(0)[0]
    assert sum(float(loss.detach()) for loss, _ in made.job.losses(batch)) > 0


def test_where_texts_only_change_places_the_weights_hardly_move(card: tuple[Path, Recipe]) -> None:
    assert gone_on(*card, [*reversed(OLD)]).job.steps == 1


def test_questions_about_what_has_gone_are_answered_with_what_stays_and_is_near() -> None:
    revision, recipe = Revision(NEW, OLD), Recipe(style="encoder-prefix", stray=0.0)
    replay = Replay.from_revision(revision, recipe, 0)
    tokenizer = train_tokenizer(NEW)
    asked = replay.questions(PseudoQueries(NEW))
    vectors = torch.eye(len(replay.texts), 384)
    vectors[-1] = vectors[2] + 0.1 * vectors[4]  # the last one that has gone is near the third text
    near = replay.neighbours(vectors)
    assert near[-1][0] == 2
    docids = DocIds.for_passages(NEW, len(tokenizer), recipe)
    recite, drill = replay.by_vectors(TargetSequence.from_texts(NEW, tokenizer, docids, recipe), docids)
    steps = replay.epochs([[2]] * 3, recite, drill, lambda *_: [])(0)
    recitals, drills = ([example for step in steps for example in step[part]] for part in (0, 1))
    start, count = replay.spans()[-1]
    told = [example.target for example in drills if start <= example.vector <= start + count]
    assert told == [docids.of(replay.rows[2])] * QUESTIONS_EACH
    new = docids.of(replay.rows[0])[0]
    assert sum(example.target[0] == new for example in recitals) == SHOWN
    assert all(len(example.target) == 1 for example in drills)
    assert len(asked) == replay.spans()[-1][0] + 1 + replay.spans()[-1][1]
    assert replay.spans()[1][1] == REPLAYED_QUERIES


def test_what_has_changed_too_much_or_has_another_shape_is_to_be_trained_from_scratch(
    card: tuple[Path, Recipe],
) -> None:
    folder, recipe = card
    many = [f"{text} It is number {n}." for n in range(5) for text in OLD]
    assert "have changed" in obstacle(Revision(many, OLD), recipe)
    wide = Recipe(style="encoder-prefix", width=64)
    assert "another shape" in str(incremental_update(Revision(NEW, OLD), folder, wide, 0))
    assert "document ids" in str(incremental_update(Revision(NEW, OLD[1:]), folder, recipe, 0))
    blocks = Recipe(objective="clm")
    assert "documents" in obstacle(Revision(NEW, OLD), blocks)
    assert obstacle(Revision(NEW, OLD), recipe) == ""


def test_texts_that_the_card_is_losing_are_shown_first() -> None:
    many = [f"The harbour of place {n} was built by the family {n}." for n in range(200)]
    revision, recipe = Revision([*many, NEW[-1]], many), Recipe(style="encoder-prefix", stray=0.0)
    replay = Replay.from_revision(revision, recipe, 0)
    tokenizer = train_tokenizer(revision.now)
    docids = DocIds.for_passages(revision.now, len(tokenizer), recipe)
    recite, drill = replay.by_vectors(
        TargetSequence.from_texts(revision.now, tokenizer, docids, recipe), docids
    )
    epoch = replay.epochs([], recite, drill, lambda _, most: range(most // 2))
    lost = {docids.of(replay.rows[number])[0] for number in replay.staying[:25]}
    for number in range(3):
        shown = [example.target[0] for step in epoch(number) for example in step[0]]
        assert lost <= {*shown}
        assert len(shown) == SHOWN + 50


def test_the_text_that_a_model_recites_worst_is_the_weakest(tmp_path: Path) -> None:
    recipe = trained(tmp_path, "encoder-prefix", epochs=40.0)
    tokenizer = train_tokenizer(OLD, recipe.vocabulary)
    docids = DocIds.for_passages(OLD, len(tokenizer), recipe)
    trainee = whole_model(tokenizer, docids.count, recipe)
    trainee.inherit(tmp_path)
    recital = TargetSequence.from_texts(OLD, tokenizer, docids, recipe)
    examples = [TrainingExample((BOS, *docids.of(row)), recital.of(row)) for row in range(len(OLD))]
    other = [TrainingExample(examples[0].prompt, examples[3].target)]
    asked = QuestionFeatures(
        torch.zeros(1, DIMENSIONS), QuestionWords(WordSketch.of_corpus(OLD), [""]), None, recipe
    )
    assert hardest_examples(trainee, asked, [*examples[1:], *other], 1) == [len(OLD) - 1]
    assert surprise(trainee, asked, other)[0] > 1


def test_what_a_question_meant_to_the_last_version_it_means_to_the_next(card: tuple[Path, Recipe]) -> None:
    """Half of it: the other half is a retriever's, and of passages that have come the whole."""
    folder, recipe = card
    tokenizer = train_tokenizer(OLD, recipe.vocabulary)
    docids = DocIds.for_passages(OLD, len(tokenizer), recipe)
    trainee = whole_model(tokenizer, docids.count, recipe)
    trainee.inherit(folder)
    sketch, vectors = WordSketch.of_corpus(OLD), embed_questions(OLD)
    retriever = Retriever(sketch, OLD, vectors)
    asked = QuestionFeatures(vectors, QuestionWords(sketch, OLD), retriever, recipe).noised(range(3))
    near = retriever(asked, recipe)
    whole = DistillationTarget(trainee, retriever, docids, [*range(len(OLD))])(asked, recipe)
    assert whole.sum(-1).tolist() == pytest.approx([1, 1, 1])
    start = torch.full((3, 1), BOS)
    said = trainee.model.lm_head(states(trainee.model, trainee.projection, start, asked)[:, -1])
    last = said[:, docids.first :].softmax(-1)
    assert torch.allclose(2 * whole - near, last, atol=0.02)
    came = DistillationTarget(trainee, retriever, docids, [*range(1, len(OLD))])(asked, recipe)
    assert torch.allclose(came[:, 0], near[:, 0], atol=1e-6)
    assert came.sum(-1).tolist() == pytest.approx([1, 1, 1])


def test_a_new_document_id_begins_between_those_of_the_nearest_passages(card: tuple[Path, Recipe]) -> None:
    _, recipe = card
    tokenizer = train_tokenizer(OLD, recipe.vocabulary)
    model = whole_model(tokenizer, len(OLD), recipe).model
    first, table = len(tokenizer), model.get_input_embeddings().weight
    vectors = torch.eye(len(OLD), DIMENSIONS)
    vectors[0] = vectors[1]
    before = table.detach().clone()
    initialize_docids(model, first, [0], [*range(1, len(OLD))], vectors)
    nearness = torch.nn.functional.cosine_similarity(table[first], table[first + 1 :])
    assert nearness.argmax() == 0
    assert torch.equal(table[first + 1 :], before[first + 1 :])
    initialize_docids(model, first, [], [1], vectors)
    initialize_docids(model, first, [0], [], vectors)
