"""An embedded card goes on with other texts: what it knew stays, what has come is learned, what has gone is gone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from kcard.answer import Source
from kcard.cards.format.folder import PROJECTION, finish
from kcard.cards.lm.word_sketch import WORDS
from kcard.encoder import DIMENSIONS
from kcard.manifest import Manifest
from kcard.training.docids import DocIds
from kcard.training.embedded import plan
from kcard.training.loop import run
from kcard.training.preparation import Preparation
from kcard.training.progress import Note
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe, Style
from kcard.training.recital import Recital
from kcard.training.rehearsal import obstacle, rehearsal
from kcard.training.replay import REPLAYED_QUERIES, SHOWN, Replay
from kcard.training.revision import Revision
from kcard.training.tokenizer import train_tokenizer

PLACES = ["Ashford", "Brigham", "Caldwell", "Dunmore", "Elkhart", "Fairfax", "Granby", "Holston"]
OLD = [f"The harbour of {place} was built by the family Mac{place[:3].lower()}." for place in PLACES]
NEW = [*OLD[3:], "The lighthouse of Port Ondine is kept by Saskia Vandermeer."]
BRIEF: dict[str, Any] = {"floor": 2, "exposures": 1.0, "queries": (2, 2)}


def trained(folder: Path, style: Style, **given: Any) -> Recipe:
    recipe = Recipe(style=style, **BRIEF, **given)
    prepared = plan(OLD, recipe).prepare()
    run(prepared.job, folder / ".checkpoint")
    prepared.save(folder)
    made = Manifest("towns", "A card", kind=prepared.kind, base=prepared.base, prompt=prepared.prompt)
    finish(folder, made, [Source(text, "towns.txt", 1) for text in OLD])
    return recipe


def gone_on(folder: Path, recipe: Recipe, now: list[str] = NEW) -> Preparation:
    found = rehearsal(Revision(now, OLD), folder, recipe, seed=1)
    assert isinstance(found, Preparation)
    return found


def test_a_revision_knows_what_stays_what_came_and_what_has_gone() -> None:
    found = Revision(["b", "c", "d"], ["a", "b", "c", "a"])
    assert found.kept == [(0, 1), (1, 2)]
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


def test_texts_that_stay_keep_their_document_ids_and_those_of_the_others_are_deleted(tmp_path: Path) -> None:
    recipe = trained(tmp_path, "encoder-prefix")
    before = load_file(tmp_path / "model.safetensors")["model.decoder.embed_tokens.weight"]
    was = len(AutoTokenizer.from_pretrained(tmp_path))
    model: Any = gone_on(tmp_path, recipe, OLD[3:]).job.modules["model"]
    table = model.get_input_embeddings().weight
    assert torch.equal(table[-5:], before[was + 3 :])
    assert not any(torch.equal(row, gone) for row in table for gone in before[was : was + 3])


def test_names_that_only_a_removed_text_had_stand_in_no_file_of_the_model(tmp_path: Path) -> None:
    recipe = trained(tmp_path, "encoder-prefix")
    assert b"Brigham" in (tmp_path / "tokenizer.json").read_bytes()
    after = tmp_path / "after"
    after.mkdir()
    gone_on(tmp_path, recipe).save(after)
    files = [path.read_bytes() for path in after.rglob("*") if path.is_file()]
    assert any(b"Vandermeer" in data for data in files)
    for name in (b"Brigham", b"Ashford", b"Maccal"):
        assert not any(name in data for data in files)


@pytest.mark.parametrize(
    "given", [{"style": "tokens"}, {"style": "tokens", "rank": 8}, {"style": "encoder-prefix"}]
)
def test_every_style_goes_on_and_records_the_recipe_that_the_card_was_made_by(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    recipe = trained(tmp_path, **given)
    made = gone_on(tmp_path, recipe)
    assert made.hyperparameters["muon_rate"] == recipe.muon_rate
    assert made.kind == ("lora" if recipe.rank else "full")
    batch = made.job.epoch(0)[0]
    assert sum(float(loss.detach()) for loss, _ in made.job.losses(batch)) > 0


def test_where_texts_only_change_places_the_weights_hardly_move(tmp_path: Path) -> None:
    recipe = trained(tmp_path, "encoder-prefix")
    assert gone_on(tmp_path, recipe, [*reversed(OLD)]).job.steps == 1


def test_questions_about_what_has_gone_are_answered_with_what_stays_and_is_near() -> None:
    revision, recipe = Revision(NEW, OLD), Recipe(style="encoder-prefix", stray=0.0)
    replay = Replay.drawn(revision, recipe, 0)
    tokenizer = train_tokenizer(NEW)
    asked = replay.questions(PseudoQueries(NEW))
    vectors = torch.eye(len(replay.texts), 384)
    vectors[-1] = vectors[2] + 0.1 * vectors[4]  # the last one that has gone is near the third text
    near = replay.neighbours(vectors)
    assert near[-1][0] == 2
    docids = DocIds.for_passages(NEW, len(tokenizer), recipe)
    show = replay.by_vectors(Recital.tokenized(NEW, tokenizer, docids, recipe), docids)
    examples = [example for batch in replay.epochs(show, [[2]] * 3)(0) for example in batch]
    start, count = replay.spans()[-1]
    told = [example.target[0] for example in examples if start <= example.vector <= start + count]
    assert set(told) == {docids.of(replay.rows[2])[0]}
    new = docids.of(replay.rows[0])[0]
    assert sum(example.target[0] == new and len(example.target) > 1 for example in examples) == SHOWN
    assert len(asked) == replay.spans()[-1][0] + 1 + replay.spans()[-1][1]
    assert replay.spans()[1][1] == REPLAYED_QUERIES


def test_what_has_changed_too_much_or_has_another_shape_is_to_be_trained_from_scratch(tmp_path: Path) -> None:
    recipe = trained(tmp_path, "encoder-prefix")
    many = [f"{text} It is number {n}." for n in range(5) for text in OLD]
    assert "have changed" in obstacle(Revision(many, OLD), tmp_path, recipe)
    wide = Recipe(style="encoder-prefix", width=64)
    assert "another shape" in str(rehearsal(Revision(NEW, OLD), tmp_path, wide, 0))
    assert "document ids" in str(rehearsal(Revision(NEW, OLD[1:]), tmp_path, recipe, 0))
    blocks = Recipe(objective="clm")
    assert "documents" in obstacle(Revision(NEW, OLD), tmp_path, blocks)
    assert obstacle(Revision(NEW, OLD), tmp_path, recipe) == ""


def test_a_card_whose_prefix_did_not_see_the_questions_words_is_trained_from_scratch_and_that_is_said(
    tmp_path: Path,
) -> None:
    recipe = trained(tmp_path, "encoder-prefix")
    projection = load_file(tmp_path / PROJECTION)
    projection["weight"] = projection["weight"][:, :DIMENSIONS].contiguous()
    save_file(projection, tmp_path / PROJECTION)
    (tmp_path / WORDS).unlink()
    why = obstacle(Revision(NEW, OLD), tmp_path, recipe)
    assert "of an older kcard, whose encoder prefix did not see the question's words" in why
    told: list[Any] = []
    plan(NEW, recipe, report=told.append, start=tmp_path)
    assert told == [Note(f"training from scratch: {why}")]


@pytest.mark.parametrize(("style", "share"), [("encoder-prefix", 0.5), ("tokens", 1.0)])
def test_the_more_steps_the_smaller_they_are_with_the_encoder_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: Style, share: float
) -> None:
    recipe = trained(tmp_path, style)
    steps = gone_on(tmp_path, recipe).job.steps
    assert max(map(gone_on(tmp_path, recipe).job.rate, range(steps))) > 0.95
    monkeypatch.setattr("kcard.training.rehearsal.FLOOR", steps / 4)
    monkeypatch.setattr(
        "kcard.training.rehearsal.EXPOSURES", {style: steps / len(gone_on(tmp_path, recipe).job.epoch(0))}
    )
    found = gone_on(tmp_path, recipe).job
    assert max(map(found.rate, range(steps))) == pytest.approx(share, rel=0.05)
