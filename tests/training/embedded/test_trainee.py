"""Adapters on the embedded base: what is trained of them, what their files hold, and what the next version keeps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from kcard.cards.card import Card
from kcard.cards.model_card import readme
from kcard.cards.models.loader import Loader, base_digest
from kcard.cards.models.stack import StackedCard, load
from kcard.cards.models.transformers_backend import CausalCard
from kcard.cards.pool import CardPool
from kcard.embedded.opt import BASE, FOLDER
from kcard.manifest import Base
from kcard.training.embedded.recipe import Recipe
from kcard.training.embedded.trainee import adapted_model, base_tokenizer
from kcard.training.train import train
from kcard.types import Sampling
from tests.corpora import NAMES, SENATE, STATES
from tests.training.documents import written

pytestmark = pytest.mark.numeric

QUESTIONS = [f"In {state}, who carried the Senate election?" for state in STATES]
SHORT = Sampling(temperature=0, tokens=24)
RECIPE = Recipe(rank=8, epochs=2, batch_tokens=256)


def learnt(folder: Path, texts: list[str] = SENATE, **options: Any) -> Card:
    facts = written(folder, "facts.txt", "\n".join(texts))
    chosen: dict[str, Any] = {"base": "embedded", "method": "lora", "output": folder / "card", "epochs": 2}
    return train(facts, **(chosen | options))


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Card:
    return learnt(tmp_path_factory.mktemp("adapter"), epochs=90)


def test_it_recites_the_passage_that_holds_the_answer_in_less_than_a_megabyte(card: Card) -> None:
    assert (card.manifest.method, card.manifest.base) == ("lora", Base(BASE, None, base_digest(BASE)))
    written = CardPool([card]).generate(QUESTIONS, [[card.name]] * len(QUESTIONS), 1, SHORT)
    assert sum(name in found[0].text for name, found in zip(NAMES, written, strict=True)) >= 6
    assert (card.folder / "adapter_model.safetensors").stat().st_size < 1_000_000
    assert not list(card.folder.glob("model*.safetensors"))


def test_it_goes_through_the_engine_and_writes_what_peft_writes(card: Card) -> None:
    models = Loader()
    loaded = load(card, models)
    assert isinstance(loaded, StackedCard)
    stacked = loaded.generate(QUESTIONS, 1, SHORT)
    peft = CausalCard(card, Loader()).generate(QUESTIONS, 1, SHORT)
    assert [[p.text for p in row] for row in stacked] == [[p.text for p in row] for row in peft]


def test_one_half_of_a_pair_is_a_fixed_basis_and_only_the_corpus_tokens_have_embeddings(card: Card) -> None:
    weights = load_file(card.folder / "adapter_model.safetensors")
    untrained = adapted_model(SENATE, base_tokenizer(), replace(RECIPE, rank=56))
    for name, weight in weights.items():
        if ("fc1.lora_A" in name) or ("fc2.lora_B" in name):
            basis = weight.float() if weight.shape[0] < weight.shape[1] else weight.float().T
            torch.testing.assert_close(basis @ basis.T, torch.eye(len(basis)), atol=2e-3, rtol=0)
        elif "lora_" in name:
            assert weight.float().norm() > 0.01
    config = untrained.peft.peft_config["default"]
    tokens = config.trainable_token_indices["embed_tokens"]
    text = base_tokenizer()(SENATE, add_special_tokens=False)["input_ids"]
    assert set(tokens) == {token for row in text for token in row}
    (rows,) = (weight for name, weight in weights.items() if "trainable_tokens" in name)
    before = load_file(FOLDER / "model.safetensors")["model.decoder.embed_tokens.weight"][tokens]
    assert rows.shape == before.shape
    assert not torch.allclose(rows.float(), before.float(), atol=1e-3)


def test_an_update_keeps_base_method_and_rank(tmp_path: Path) -> None:
    first = learnt(tmp_path / "one", SENATE[:4], rank=8)
    new = written(tmp_path, "new.txt", "\n".join(SENATE[4:]))
    manifest = train(new, update=first.folder, output=tmp_path / "next").manifest
    assert (manifest.method, manifest.base) == ("lora", first.manifest.base)
    assert manifest.training.hyperparameters["rank"] == 8
    assert manifest.training.passages == len(SENATE)


def test_its_model_card_names_no_hub_model_and_its_code_loads_the_card(card: Card) -> None:
    text = readme(card.manifest)
    assert "base_model:" not in text
    code = text.split("```python\n")[1].split("```")[0]
    scope: dict[str, Any] = {"folder": str(card.folder)}
    exec(code.replace("folder = ", "_ = "), scope)  # the code that the card shows
    ids = scope["tokenizer"](f"{QUESTIONS[0]}\n", return_tensors="pt")["input_ids"]
    tokens = scope["model"].generate(input_ids=ids, max_new_tokens=20, do_sample=False)
    assert NAMES[0] in scope["tokenizer"].decode(tokens[0], skip_special_tokens=True)


def test_the_base_has_the_digest_and_size_that_the_docs_tell() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 20_000_000
    assert len(AutoTokenizer.from_pretrained(FOLDER)) == 6000
