"""Fingerprints: what is wrong with a card that does not act as it did, and that a whole one is let in."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from kcard.cards import fingerprint
from kcard.cards.card import Card, finish
from kcard.cards.fingerprint import FINGERPRINT
from kcard.cards.generators import external
from kcard.cards.models.loader import LoadedModel, Loader
from kcard.cards.models.transformers_backend import CausalCard
from kcard.errors import CardError, KcardError, ModelUnavailable
from kcard.manifest import seal
from tests.cards.engine.cards import full, lora, prefixed
from tests.cards.engine.models import model
from tests.corpora import RIVERS

PAIRS = [(f"Which river is this: {text[20:40]}?", text) for text in RIVERS]
TARGETS = ["q_proj", "v_proj"]


def changed(card: Card, file: str, change: Callable[[dict[str, Any]], None]) -> Card:
    """The card with other tensors in one file, sealed again: every sha256 agrees."""
    tensors = load_file(card.folder / file)
    change(tensors)
    save_file(tensors, card.folder / file, {"format": "pt"})
    seal(card.folder, card.manifest)
    return Card.open(card.folder)


def load(card: Card) -> None:
    external.load_model_of_card(card, Loader())


def kept_in(folder: Path) -> fingerprint.Fingerprint:
    kept = fingerprint.read_fingerprint(folder)
    assert kept is not None
    return kept


def check(loaded: CausalCard, card: Card) -> None:
    kept = kept_in(card.folder)
    kept.check(loaded.measure(kept.pairs), card.name, card.manifest.base.name)


@pytest.fixture
def whole(tmp_path: Path) -> Card:
    return full(tmp_path, "opt", "rivers", 0, PAIRS)


@pytest.fixture(params=["opt", "llama", "qwen3"])
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def adapted(tmp_path: Path) -> Card:
    return lora(tmp_path, "llama", "lakes", 1, PAIRS, targets=TARGETS)


def test_a_whole_model_and_an_adapter_are_loaded_without_a_word(
    shape: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        load(full(tmp_path, shape, "rivers", 0, PAIRS))
        load(lora(tmp_path, shape, "lakes", 1, PAIRS, targets=TARGETS))
    assert not caplog.records


@pytest.mark.numeric
def test_questions_are_followed_by_their_passage_and_a_foreign_text_with_the_probabilities_of_transformers(
    whole: Card,
) -> None:
    kept = kept_in(whole.folder)
    assert kept.pairs[:4] == PAIRS
    assert [question for question, _ in kept.pairs[4:]] == [question for question, _ in PAIRS]
    assert not {text for _, text in kept.pairs[4:]} & set(RIVERS)
    read: Any = AutoModelForCausalLM.from_pretrained(whole.folder)
    for row in kept.rows:
        ids = torch.tensor([[*row.prompt, *row.continuation]])
        scores = read(ids).logits[0].log_softmax(-1)
        expected = [scores[len(row.prompt) + i - 1, token].item() for i, token in enumerate(row.continuation)]
        assert row.card == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (0.0, r"'lakes': its adapter is not applied \(shift 0\.00 where \d\.\d\d was"),
        (0.95, "its adapter is applied, but not as it was trained"),
        (-1.0, "its adapter is applied, but not as it was trained"),
    ],
)
def test_a_scaled_adapter_is_not_applied_or_not_as_it_was_trained(
    adapted: Card, factor: float, message: str
) -> None:
    def scale(tensors: dict[str, Any]) -> None:
        for name in tensors:
            if "lora_B" in name:
                tensors[name] *= factor

    with pytest.raises(CardError, match=message):
        load(changed(adapted, "adapter_model.safetensors", scale))


def test_a_base_of_the_same_shape_with_other_weights_has_changed(shape: str, tmp_path: Path) -> None:
    card = lora(tmp_path, shape, "lakes", 1, PAIRS, targets=TARGETS)
    base = card.manifest.base
    model(shape, seed=9).save_pretrained(base.name)
    undigested = replace(card.manifest, base=replace(base, sha256=None))
    with pytest.raises(ModelUnavailable, match=r"the base '.*base' has changed: its own log-probabilities"):
        load(Card(card.folder, undigested))


@pytest.mark.numeric
def test_another_dtype_of_the_same_model_passes_and_what_is_wrong_is_still_told_apart(
    whole: Card, adapted: Card
) -> None:
    for card in (whole, adapted):
        loaded = CausalCard(card, Loader())
        for dtype in (torch.float16, torch.float64, torch.bfloat16):
            loaded.loaded.model.to(dtype)
            check(loaded, card)
    weights = dict(loaded.loaded.model.named_parameters())
    with torch.no_grad():
        for name, weight in weights.items():
            if "lora_B" in name:
                weight.zero_()
    with pytest.raises(CardError, match="adapter is not applied"):
        check(loaded, adapted)
    with torch.no_grad():
        for name, weight in weights.items():
            if "lora_" not in name and weight.ndim == 2:
                weight.copy_(weight.roll(1, 0))
    with pytest.raises(ModelUnavailable, match="has changed"):
        check(loaded, adapted)


def test_cards_on_one_base_are_checked_each_and_the_adapter_of_another_is_found_out(tmp_path: Path) -> None:
    names = ["lakes", "dams"]
    cards = [lora(tmp_path, "llama", name, seed, PAIRS, targets=TARGETS) for seed, name in enumerate(names)]
    models = Loader()
    lakes, dams = (CausalCard(card, models) for card in cards)
    for loaded, card in [(lakes, cards[0]), (dams, cards[1]), (lakes, cards[0])]:
        check(loaded, card)
    lakes.loaded = LoadedModel(dams.loaded.model, dams.loaded.adapter)
    with pytest.raises(CardError, match="'lakes': its adapter is applied, but not as it was trained"):
        check(lakes, cards[0])


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_zeroed_projection_is_found_out(tmp_path: Path, name: str) -> None:
    card = prefixed(tmp_path, "seas", 2, PAIRS)
    load(card)
    with pytest.raises(CardError, match="'seas': its model no longer computes what it did when it was made"):
        load(changed(card, "projection.safetensors", lambda tensors: tensors[name].zero_()))


def test_a_tokenizer_with_permuted_tokens_differs(whole: Card) -> None:
    path = whole.folder / "tokenizer.json"
    data = json.loads(path.read_text())
    vocabulary = data["model"]["vocab"]
    ids = [*vocabulary.values()]
    data["model"]["vocab"] = dict(zip(vocabulary, ids[:3] + ids[4:] + ids[3:4], strict=True))
    path.write_text(json.dumps(data))
    seal(whole.folder, whole.manifest)
    with pytest.raises(CardError, match="'rivers': its tokenizer differs"):
        load(Card.open(whole.folder))


def test_every_tensor_of_a_full_card_that_changes_its_sign_is_found_out(whole: Card) -> None:
    loaded = CausalCard(whole, Loader())
    weights = dict(loaded.loaded.model.named_parameters())
    # The softmax of attention takes no notice of what is added to all keys alike.
    acting = {name: w for name, w in weights.items() if "k_proj.bias" not in name and w.abs().sum() > 0}
    assert len(acting) >= 17
    check(loaded, whole)
    for weight in acting.values():
        with torch.no_grad():
            weight.neg_()
            with pytest.raises(CardError, match="no longer computes what it did when it was made"):
                check(loaded, whole)
            weight.neg_()
    check(loaded, whole)


def test_weights_that_are_no_numbers_are_found_out(whole: Card) -> None:
    def spoil(tensors: dict[str, Any]) -> None:
        tensors[next(name for name in tensors if "v_proj.weight" in name)].fill_(float("nan"))

    with pytest.raises(CardError, match="no longer computes"):
        load(changed(whole, "model.safetensors", spoil))


def test_an_adapter_that_changes_nothing_gets_no_fingerprint(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="changes nothing in its base"):
        lora(tmp_path, "llama", "lakes", 1, PAIRS, targets=["q_proj"], init_lora_weights=True)


def test_where_only_hashes_travel_no_word_of_the_corpus_is_in_the_fingerprint(whole: Card) -> None:
    fingerprint.write_fingerprint(whole.folder, replace(whole.manifest, evidence="hashes"), PAIRS)
    assert len(kept_in(whole.folder).rows) == 8
    text = (whole.folder / FINGERPRINT).read_text()
    assert not any(name in text for name in ("Rhine", "Danube", "Seine", "Elbe", "Which river"))


def test_a_card_without_a_fingerprint_is_loaded_and_said_to_be_unproven(
    whole: Card, caplog: pytest.LogCaptureFixture
) -> None:
    (whole.folder / FINGERPRINT).unlink()
    card = finish(whole.folder, whole.manifest, [])
    with caplog.at_level(logging.WARNING):
        load(card)
    (record,) = caplog.records
    assert "card rivers has no fingerprint" in record.getMessage()


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"format": 2}', '{"format": 1, "dtype": "float32", "canaries": []}', "{"),
        '{"format": 1, "dtype": "float32", "canaries": [{"question": "Who?", "text": "Ann.", "prompt": [1], '
        '"continuation": [2], "card": []}]}',
    ],
)
def test_a_file_that_holds_no_fingerprint_is_a_card_error(whole: Card, text: str) -> None:
    (whole.folder / FINGERPRINT).write_text(text)
    card = Card(whole.folder, replace(whole.manifest, files={}))
    with pytest.raises(KcardError, match=r"canaries\.json is not a fingerprint"):
        load(card)
