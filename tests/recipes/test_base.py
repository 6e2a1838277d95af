"""The embedded base's recipe: what it is trained on, and that what it writes is a base that cards can stand on."""

from pathlib import Path

import pytest
import torch
from recipes.base.facts import Facts, numbers
from recipes.base.train import train
from transformers import AutoTokenizer

from kcard.cards.models import weights
from kcard.cards.models.batched import decoder
from kcard.training.embedded.trainee import base_tokenizer


def test_questions_come_with_statements_and_the_same_seed_gives_the_same() -> None:
    first, again = (Facts(3) for _ in range(2))
    world = first.world(facts=60)
    pairs = list(first.pairs(world))
    assert pairs == list(again.pairs(again.world(facts=60)))
    assert all(statement for _, statement in pairs)
    assert {statement for _, statement in world.statements} <= {statement for _, statement in pairs}
    assert 0 < sum(not question for question, _ in pairs) < len(pairs) / 4
    assert pairs != list(first.pairs(world))


def test_no_relation_is_one_that_the_demo_or_the_benchmarks_ask_about() -> None:
    text = " ".join(statement for _, statement in Facts(1).world(facts=2000, relations=60).statements).lower()
    for word in ("midterm", "congressional district", "house elections", "senator"):
        assert word not in text


def test_common_words_and_numbers_are_single_tokens() -> None:
    words = [*(number for number in numbers() if number.isdigit()), "The", "London", "government"]
    tokens = base_tokenizer()(words, add_special_tokens=False)["input_ids"]
    assert all(len(row) == 1 for row in tokens)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    train(folder, seconds=0.1, seed=0)
    return folder


def test_a_short_run_writes_a_base_that_is_read_without_transformers(base: Path) -> None:
    model = weights.embedded(base, "cpu")
    assert model is not None
    assert all(torch.isfinite(weight).all() for weight in decoder.tensors(model.decoder))
    listed = (base / "SHA256SUMS").read_text(encoding="ascii").split()[1::2]
    assert sorted(listed) == sorted(
        p.name for p in base.iterdir() if p.name not in {"README.md", "SHA256SUMS"}
    )
    assert "Made by `python -m recipes.base.train`" in (base / "README.md").read_text(encoding="utf-8")


def test_the_tokenizer_has_room_for_every_byte(base: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base)
    assert len(tokenizer) == 6000
    ids = tokenizer("Ærø 😀", add_special_tokens=False)["input_ids"]
    assert str(tokenizer.decode(ids)).strip() == "Ærø 😀"
