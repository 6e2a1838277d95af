"""Fingerprints: what is wrong with a card that does not act as it did, and that a whole one is let in."""

import json
import logging
from collections.abc import Callable, Iterator
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
from kcard.cards.models.loader import LoadedModel, Loader, base_digest
from kcard.cards.models.transformers_backend import CausalCard
from kcard.embedded import minilm
from kcard.errors import CardError, KcardError, ModelUnavailable
from kcard.manifest import Base, Manifest, Prompt, seal
from kcard.types import Source
from tests.cards.engine.models import adapter, model
from tests.corpora import RIVERS
from tests.tiny_tokenizers import of_bytes

PAIRS = [(f"Which river is this: {text[20:40]}?", text) for text in RIVERS]
SHAPES = ("opt", "llama", "qwen3")


def base_model(family: str, folder: Path, seed: int = 0) -> Path:
    model(family, seed).save_pretrained(folder)
    return folder


def proven(folder: Path, manifest: Manifest) -> Card:
    of_bytes(RIVERS).save_pretrained(folder)
    fingerprint.write_fingerprint(folder, manifest, PAIRS)
    return finish(folder, manifest, [Source(text) for text in RIVERS])


def full_card(folder: Path, family: str) -> Card:
    return proven(base_model(family, folder), Manifest("rivers", "Rivers of Europe"))


def prefix_card(folder: Path) -> Card:
    base_model("opt", folder)
    torch.manual_seed(2)
    tensors = {"weight": torch.randn(3 * 32, minilm.DIMENSIONS), "bias": torch.randn(3 * 32)}
    save_file(tensors, folder / "projection.safetensors")
    prompt = Prompt("encoder-prefix", "", 3, minilm.NAME, minilm.SHA256)
    return proven(folder, Manifest("seas", "Seas", prompt=prompt))


def lora_card(folder: Path, base: Path, name: str, seed: int, digest: bool = True) -> Card:
    adapter(AutoModelForCausalLM.from_pretrained(base), folder, seed, ["q_proj", "v_proj"])
    made_from = Base(str(base), sha256=base_digest(str(base)) if digest else None)
    return proven(folder, Manifest(name, name.title(), method="lora", base=made_from))


def changed(card: Card, file: str, change: Callable[[dict[str, Any]], None]) -> Card:
    """The card with other tensors in one file, sealed again: every sha256 agrees."""
    tensors = load_file(card.folder / file)
    change(tensors)
    save_file(tensors, card.folder / file, {"format": "pt"})
    seal(card.folder, card.manifest)
    return Card.open(card.folder)


def load(card: Card) -> None:
    external.load_model_of_card(card, Loader())


def check(loaded: CausalCard, card: Card) -> None:
    kept = fingerprint.read_fingerprint(card.folder)
    assert kept is not None
    kept.check(loaded.measure(kept.pairs), card.name, card.manifest.base.name)


@pytest.fixture
def full(tmp_path: Path) -> Card:
    return full_card(tmp_path / "rivers", "opt")


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lora(tmp_path: Path) -> Card:
    return lora_card(tmp_path / "lakes", base_model("llama", tmp_path / "base"), "lakes", 1)


@pytest.fixture
def silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING):
        yield
    assert not caplog.records


@pytest.mark.usefixtures("silent")
def test_a_whole_model_and_an_adapter_are_loaded_without_a_word(shape: str, tmp_path: Path) -> None:
    load(full_card(tmp_path / "rivers", shape))
    load(lora_card(tmp_path / "lakes", base_model(shape, tmp_path / "base"), "lakes", 1))


def test_each_question_is_followed_by_its_passage_and_by_a_text_that_is_foreign_to_it(full: Card) -> None:
    kept = fingerprint.read_fingerprint(full.folder)
    assert kept is not None
    assert kept.pairs[:4] == PAIRS
    assert [question for question, _ in kept.pairs[4:]] == [question for question, _ in PAIRS]
    assert not {text for _, text in kept.pairs[4:]} & set(RIVERS)


@pytest.mark.numeric
def test_the_kept_log_probabilities_are_those_that_transformers_gives(full: Card) -> None:
    kept = fingerprint.read_fingerprint(full.folder)
    assert kept is not None
    read: Any = AutoModelForCausalLM.from_pretrained(full.folder)
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
    lora: Card, factor: float, message: str
) -> None:
    def scale(tensors: dict[str, Any]) -> None:
        for name in tensors:
            if "lora_B" in name:
                tensors[name] *= factor

    with pytest.raises(CardError, match=message):
        load(changed(lora, "adapter_model.safetensors", scale))


def test_a_base_of_the_same_shape_with_other_weights_has_changed(shape: str, tmp_path: Path) -> None:
    base = base_model(shape, tmp_path / "base")
    card = lora_card(tmp_path / "lakes", base, "lakes", 1, digest=False)
    base_model(shape, base, seed=9)
    with pytest.raises(ModelUnavailable, match=r"the base '.*base' has changed: its own log-probabilities"):
        load(card)


@pytest.mark.numeric
def test_another_dtype_of_the_same_model_passes(full: Card, lora: Card) -> None:
    for card in (full, lora):
        loaded = CausalCard(card, Loader())
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            loaded.loaded.model.to(dtype)
            check(loaded, card)


@pytest.mark.numeric
def test_in_bfloat16_a_zeroed_adapter_and_another_base_are_still_told_apart(lora: Card) -> None:
    loaded = CausalCard(lora, Loader())
    loaded_model = loaded.loaded.model.to(torch.bfloat16)
    with torch.no_grad():
        for name, weight in loaded_model.named_parameters():
            if "lora_B" in name:
                weight.zero_()
    with pytest.raises(CardError, match="adapter is not applied"):
        check(loaded, lora)
    with torch.no_grad():
        for name, weight in loaded_model.named_parameters():
            if "lora_" not in name and weight.ndim == 2:
                weight.copy_(weight.roll(1, 0))
    with pytest.raises(ModelUnavailable, match="has changed"):
        check(loaded, lora)


def test_cards_on_one_base_are_checked_each_and_the_adapter_of_another_is_found_out(tmp_path: Path) -> None:
    base = base_model("llama", tmp_path / "base")
    cards = [lora_card(tmp_path / name, base, name, seed) for seed, name in enumerate(["lakes", "dams"])]
    models = Loader()
    lakes, dams = (CausalCard(card, models) for card in cards)
    for loaded, card in [(lakes, cards[0]), (dams, cards[1]), (lakes, cards[0])]:
        check(loaded, card)
    lakes.loaded = LoadedModel(dams.loaded.model, dams.loaded.adapter)
    with pytest.raises(CardError, match="'lakes': its adapter is applied, but not as it was trained"):
        check(lakes, cards[0])


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_a_zeroed_projection_is_found_out(tmp_path: Path, name: str) -> None:
    card = prefix_card(tmp_path / "seas")
    load(card)
    with pytest.raises(CardError, match="'seas': its model no longer computes what it did when it was made"):
        load(changed(card, "projection.safetensors", lambda tensors: tensors[name].zero_()))


def test_a_tokenizer_with_permuted_tokens_differs(full: Card) -> None:
    path = full.folder / "tokenizer.json"
    data = json.loads(path.read_text())
    vocabulary = data["model"]["vocab"]
    ids = [*vocabulary.values()]
    data["model"]["vocab"] = dict(zip(vocabulary, ids[:3] + ids[4:] + ids[3:4], strict=True))
    path.write_text(json.dumps(data))
    seal(full.folder, full.manifest)
    with pytest.raises(CardError, match="'rivers': its tokenizer differs"):
        load(Card.open(full.folder))


def test_every_tensor_of_a_full_card_that_changes_its_sign_is_found_out(full: Card) -> None:
    loaded = CausalCard(full, Loader())
    weights = dict(loaded.loaded.model.named_parameters())
    # The softmax of attention takes no notice of what is added to all keys alike.
    acting = {name: w for name, w in weights.items() if "k_proj.bias" not in name and w.abs().sum() > 0}
    assert len(acting) >= 17
    check(loaded, full)
    for weight in acting.values():
        with torch.no_grad():
            weight.neg_()
            with pytest.raises(CardError, match="no longer computes what it did when it was made"):
                check(loaded, full)
            weight.neg_()
    check(loaded, full)


def test_weights_that_are_no_numbers_are_found_out(full: Card) -> None:
    def spoil(tensors: dict[str, Any]) -> None:
        tensors[next(name for name in tensors if "v_proj.weight" in name)].fill_(float("nan"))

    with pytest.raises(CardError, match="no longer computes"):
        load(changed(full, "model.safetensors", spoil))


def test_an_adapter_that_changes_nothing_gets_no_fingerprint(tmp_path: Path) -> None:
    base = base_model("llama", tmp_path / "base")
    adapter(model("llama"), tmp_path / "lakes", 1, ["q_proj"], init_lora_weights=True)
    with pytest.raises(CardError, match="changes nothing in its base"):
        proven(tmp_path / "lakes", Manifest("lakes", "Lakes", method="lora", base=Base(str(base))))


def test_where_only_hashes_travel_no_word_of_the_corpus_is_in_the_fingerprint(tmp_path: Path) -> None:
    folder = base_model("opt", tmp_path / "rivers")
    of_bytes(RIVERS).save_pretrained(folder)
    fingerprint.write_fingerprint(folder, Manifest("rivers", "Rivers", evidence="hashes"), PAIRS)
    kept = fingerprint.read_fingerprint(folder)
    assert kept is not None
    assert len(kept.rows) == 8
    text = (folder / FINGERPRINT).read_text()
    assert not any(name in text for name in ("Rhine", "Danube", "Seine", "Elbe", "Which river"))


def test_a_card_without_a_fingerprint_is_loaded_and_said_to_be_unproven(
    full: Card, caplog: pytest.LogCaptureFixture
) -> None:
    (full.folder / FINGERPRINT).unlink()
    card = finish(full.folder, full.manifest, [])
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
def test_a_file_that_holds_no_fingerprint_is_a_card_error(full: Card, text: str) -> None:
    (full.folder / FINGERPRINT).write_text(text)
    card = Card(full.folder, replace(full.manifest, files={}))
    with pytest.raises(KcardError, match=r"canaries\.json is not a fingerprint"):
        load(card)
