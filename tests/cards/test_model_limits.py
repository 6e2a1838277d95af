"""Models of strangers, whose configs, tokenizers and adapters ask for more than any machine has."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kcard.cards import model_limits
from kcard.cards.adapters import read_peft
from kcard.cards.card import Card
from kcard.cards.generators.retrieval import load_generator
from kcard.cards.model_limits import check_rules, refuse_oversized
from kcard.cards.models.batched import lora as lora_files
from kcard.cards.models.batched import patterns
from kcard.cards.models.loader import Loader
from kcard.errors import CardError
from kcard.manifest import seal
from tests.cards.engine.cards import full, lora, tokenizer

HUGE = 100_000_000


def edited(card: Card, path: str, **changes: Any) -> Card:
    """The card with other values in a file of JSON, sealed again."""
    file = card.folder / path
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | changes), encoding="utf-8")
    seal(card.folder, card.manifest)
    return Card.open(card.folder)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("opt", {"num_hidden_layers": HUGE}),
        ("llama", {"num_hidden_layers": HUGE}),
        ("llama", {"text_config": {"num_hidden_layers": HUGE}}),
        ("llama", {"num_hidden_layers": 1000, "num_local_experts": 1000}),
        ("llama", {"vocab_size": 10**9, "tie_word_embeddings": True}),
        ("llama", {"intermediate_size": 10**12}),
        ("opt", {"max_position_embeddings": 10**10, "do_layer_norm_before": False}),
    ],
)
def test_a_config_that_asks_for_more_than_its_weights_is_refused(
    tmp_path: Path, family: str, change: dict[str, Any]
) -> None:
    card = edited(full(tmp_path, family, "vast", 1), "config.json", **change)
    start = time.monotonic()
    with pytest.raises(CardError, match=r"but its weights are|do not fit|must be"):
        load_generator(card, Loader())
    assert time.monotonic() - start < 20


def test_as_many_layers_as_there_are_tensors_are_allowed(tmp_path: Path) -> None:
    layers = model_limits.FREE_LAYERS + 500
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": layers}), encoding="utf-8")
    save_file({f"{n}": np.zeros(1, np.float32) for n in range(layers)}, tmp_path / "model.safetensors")
    refuse_oversized(tmp_path, "card")
    (tmp_path / "config.json").write_text(json.dumps({"n_layer": layers + 1}), encoding="utf-8")
    with pytest.raises(CardError, match=f"{layers + 1} layers"):
        refuse_oversized(tmp_path, "card")


def replacing(content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": "a"}, "content": content}


TENFOLD = replacing("a" * 10)
CHARSMAP = base64.b64encode((4).to_bytes(4, "little") + bytes(4) + b"a" * 10_000 + b"\0").decode()
TEMPLATE = [{"SpecialToken": {"id": "<s>", "type_id": 0}}] * 100
TEMPLATE_IDS = {"<s>": {"id": "<s>", "ids": [1] * 100, "tokens": ["<s>"] * 100}}


@pytest.mark.parametrize(
    "rules",
    [
        {"normalizer": replacing("a" * 1_000_000)},
        {"normalizer": {"type": "Sequence", "normalizers": [TENFOLD] * 4}},
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}] * 3}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}},
        {"normalizer": {"type": "Prepend", "prepend": "a" * 100_000}},
        {"normalizer": TENFOLD, "pre_tokenizer": {"type": "Metaspace", "replacement": "a" * 1000}},
        {"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, replacing("a" * 5000)]}},
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": TEMPLATE,
                "special_tokens": TEMPLATE_IDS,
            }
        },
        {"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 5000}},
        {"padding": {"strategy": {"Fixed": 10**10}}},
        {"model": {"type": "WordLevel", "vocab": {"a" * 100_000: 0}}},
        {"added_tokens": [{"id": 0, "content": "a" * 100_000}]},
    ],
)
def test_a_tokenizer_whose_rules_grow_without_measure_is_refused(
    tmp_path: Path, rules: dict[str, Any]
) -> None:
    card = edited(full(tmp_path, "opt", "grows", 1), "tokenizer.json", **rules)
    with pytest.raises(CardError, match=r"card 'grows': its tokenizer.*(times as long|tokens|characters)"):
        Loader().tokenizer(card)


def test_so_is_one_that_is_made_of_a_vocabulary_alone(tmp_path: Path) -> None:
    card = full(tmp_path, "opt", "grows", 1)
    (card.folder / "tokenizer.json").unlink()
    (card.folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "a" * 100_000]
    (card.folder / "vocab.txt").write_text("\n".join(words))
    with pytest.raises(CardError, match=r"card 'grows': its tokenizer.*characters"):
        Loader().tokenizer(card)


def test_usual_rules_of_tokenizers_are_allowed() -> None:
    check_rules(tokenizer().backend_tokenizer.to_str())
    llama = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replacing("▁")]}
    check_rules(json.dumps({"normalizer": llama, "pre_tokenizer": None, "decoder": replacing(" ")}))


# The model has a name on which this takes longer than the universe is old.
ENDLESS = r"(?:(a|b|c|.|..)+)+[xyz]"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MATCHING_SECONDS", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "change",
    [
        {"target_modules": ENDLESS},
        {"target_modules": "q_proj", "rank_pattern": {ENDLESS: 1}},
        {"alpha_pattern": {ENDLESS: 1}},
        {"alpha_pattern": {"((a{1000}){1000}){1000}": 1}},
        {"alpha_pattern": {"(?R)": 1}},
        {"alpha_pattern": {"(": 1}},
    ],
)
def test_a_pattern_that_never_ends_is_given_up(tmp_path: Path, change: dict[str, Any]) -> None:
    card = edited(lora(tmp_path, "llama", "endless", 1), "adapter_config.json", **change)
    start = time.monotonic()
    with pytest.raises(CardError, match=r"its config|takes more than|declares"):
        load_generator(card, Loader())
    if "alpha_pattern" in change or "rank_pattern" in change:
        with pytest.raises(CardError, match=r"endless: .*its config"):
            read_peft(card.folder)
    assert time.monotonic() - start < 20


def test_peft_gets_the_modules_that_an_adapter_has_in_place_of_patterns(tmp_path: Path) -> None:
    card = edited(
        lora(tmp_path, "llama", "named", 1, targets=["q_proj", "v_proj"]),
        "adapter_config.json",
        target_modules=r".*(q_proj|v_proj)",
        exclude_modules=ENDLESS,
        alpha_pattern={r".*\.q_proj": 3},
    )
    tensors = load_file(card.folder / lora_files.WEIGHTS)
    modules = {name.removeprefix("base_model.model.").partition(".lora_")[0] for name in tensors}
    exact = lora_files.exact_config(card.folder)
    assert exact["target_modules"] == modules
    assert exact["exclude_modules"] is None
    assert set(exact["alpha_pattern"].values()) == {3}
    assert len(exact["alpha_pattern"]) == len(modules) / 2
    loaded = Loader().lora(card).model
    assert {name.removeprefix("base_model.model.") for name in loaded.targeted_module_names} == modules


def test_a_rank_that_is_not_that_of_the_tensors_makes_no_matrices(tmp_path: Path) -> None:
    card = edited(lora(tmp_path, "llama", "wide", 1), "adapter_config.json", r=10**9)
    with pytest.raises(CardError, match=r"has rank .* but its adapter_config\.json declares 1000000000"):
        Loader().lora(card)
