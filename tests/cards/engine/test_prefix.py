"""A prefix that is the keys and values of a text acts as the text before the prompt, in the engine and outside it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, PrefixTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from kcard.cards.card import Card, finish
from kcard.cards.fingerprint import read_fingerprint
from kcard.cards.models import transformers_backend, weights
from kcard.cards.models.batched import decoder as batched_decoder
from kcard.cards.models.batched import families
from kcard.cards.models.batched import prefix as prefixes
from kcard.cards.models.batched import whole_models as whole
from kcard.cards.models.batched.generate import Prompts, log_probabilities
from kcard.cards.models.loader import Loader
from kcard.cards.models.transformers_backend import CausalCard, Limits, generate
from kcard.cards.models.transformers_backend import log_probabilities as of_transformers
from kcard.cards.pool import CardPool
from kcard.errors import CardError, KcardError
from kcard.manifest import Base, Manifest
from kcard.types import Sampling
from tests.cards.engine.cards import GREEDY, QUESTIONS, SAMPLED, full, lora, sealed, texts
from tests.cards.engine.models import FAMILIES, GROUPED, greedy, is_greedy, model
from tests.cards.engine.prefixes import prefix, prefix_card
from tests.cards.engine.test_generate import PROMPTS, write

pytestmark = pytest.mark.numeric

TEXTS = [[1, 30, 31, 32, 33], [1, 50, 51, 52, 53]]
LIMITS = Limits(eos=(), pad=0)
WINDOWED: dict[str, Callable[[], Any]] = {
    "mistral": lambda: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=64)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**GROUPED, head_dim=16, sliding_window=64)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_stacked_prefixes_of_a_text_write_what_follows_the_text(family: str, tmp_path: Path) -> None:
    base = model(family)
    read = [
        prefixes.read(prefix(base, tmp_path / str(number), ids), torch.float32)
        for number, ids in enumerate(TEXTS)
    ]
    decoder = families.decoder(weights.of_model(base))
    for one in read:
        prefixes.check_fit(decoder, one)
    stacked = prefixes.stacked(decoder, read)
    assert batched_decoder.size(stacked) - batched_decoder.size(decoder) == prefixes.added(
        decoder, [one.ranks for one in read]
    )
    written = write(stacked, 2, PROMPTS)
    for text, by_prompt in zip(TEXTS, written, strict=True):
        assert is_greedy(base, [text + prompt for prompt in PROMPTS], by_prompt)
    assert written[0] != written[1]
    assert write(whole.part(stacked, 1, 2, 2), 1, PROMPTS) == written[1:]
    assert is_greedy(base, PROMPTS, write(decoder, 1, PROMPTS)[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_fallback_and_peft_agree_with_the_engine(family: str, tmp_path: Path) -> None:
    base = model(family)
    folder = prefix(base, tmp_path / "a", TEXTS[0], noise=0.3)
    read = prefixes.read(folder, torch.float32)
    asked, more = Prompts(ids=tuple(map(tuple, PROMPTS))), [[40, 41, 42], [43]]
    stacked = prefixes.stacked(families.decoder(weights.of_model(base)), [read])
    here = of_transformers(base, asked, more, 0, read)
    _assert_close(log_probabilities(stacked, asked, more), here)
    sampling = Sampling(temperature=0, tokens=12)
    written = [ids for ids, _ in generate(base, asked, [0, 0], sampling, LIMITS, read)]
    assert written == [rows[0][:12] for rows in write(stacked, 1, PROMPTS)[0]]
    peft: Any = PeftModel.from_pretrained(base, folder)
    _assert_close([of_transformers(peft, asked.pick([row]), [more[row]], 0)[0] for row in (0, 1)], here)


def _assert_close(found: list[list[float]], expected: list[list[float]]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), atol=2e-4, rtol=0)


@pytest.mark.parametrize("shape", WINDOWED)
def test_a_base_with_sliding_windows_sees_the_whole_prefix(shape: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = WINDOWED[shape]().eval()
    base.generation_config.eos_token_id = None
    for weight in base.parameters():
        torch.nn.init.normal_(weight, std=0.25)
    read = prefixes.read(prefix(base, tmp_path / "a", TEXTS[0]), torch.float32)
    transformers_backend.check_fit(base, read)
    assert transformers_backend.room(base.config) == 64
    prompts, room = Prompts(ids=tuple(map(tuple, PROMPTS))), 64 - read.tokens - 6
    sampling = Sampling(temperature=0, tokens=room)
    written = [ids for ids, _ in generate(base, prompts, [0, 0], sampling, LIMITS, read)]
    assert [len(ids) for ids in written] == [room, room]
    assert greedy(base, [TEXTS[0] + prompt for prompt in PROMPTS], written) == written


def test_a_card_on_a_base_that_the_engine_does_not_run_writes_with_transformers(tmp_path: Path) -> None:
    base = tmp_path / "base"
    WINDOWED["mistral"]().save_pretrained(base)
    folder = prefix(AutoModelForCausalLM.from_pretrained(base), tmp_path / "rivers", TEXTS[0], noise=0.3)
    made = sealed(folder, Manifest("rivers", "Rivers", method="prefix", base=Base(str(base))))
    pool = CardPool([made])
    together = texts(pool, ["rivers"])
    assert together == [texts(pool, ["rivers"], questions=[question])[0] for question in QUESTIONS]


def test_a_base_that_keeps_no_keys_and_values_is_refused() -> None:
    mamba = MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, state_size=4))
    with pytest.raises(ValueError, match="MambaForCausalLM does not keep"):
        transformers_backend.key_value_shape(mamba)


def test_prefixes_of_prefix_tuning_are_read_as_well(tmp_path: Path) -> None:
    base = model("qwen3")
    folder = prefix(base, tmp_path / "a", TEXTS[0])
    wrapped = get_peft_model(base, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5))
    wrapped.save_pretrained(str(tmp_path / "b"))
    assert (
        prefixes.read(tmp_path / "b", torch.float32).table.shape
        == prefixes.read(folder, torch.float32).table.shape
    )


def test_a_pool_writes_with_prefixes_adapters_and_whole_models(tmp_path: Path) -> None:
    cards = [
        prefix_card(tmp_path, "llama", "short", 1, tokens=5),
        prefix_card(tmp_path, "llama", "other", 2, tokens=5),
        prefix_card(tmp_path, "llama", "long", 3, tokens=9),
        lora(tmp_path, "llama", "adapter", 4),
        full(tmp_path, "opt", "whole", 5),
    ]
    names = [card.name for card in cards]
    pool = CardPool(cards)
    together = texts(pool, names)
    alone = [texts(CardPool([card]), [card.name]) for card in cards]
    assert together == [[text for own in alone for text in own[row]] for row in range(len(QUESTIONS))]
    assert len({str(own) for own in alone}) == len(cards)
    by_transformers = CausalCard(cards[0], Loader())
    assert [[p.text for p in row] for row in by_transformers.generate(QUESTIONS, 2, SAMPLED)] == alone[0]


def test_questions_of_unlike_lengths_give_the_same_documents_in_one_batch(tmp_path: Path) -> None:
    card = prefix_card(tmp_path, "opt", "short", 1)
    pool = CardPool([card])
    together = texts(pool, ["short"])
    assert together == [texts(pool, ["short"], questions=[question])[0] for question in QUESTIONS]
    assert texts(pool, ["short"], GREEDY) != texts(pool, ["short"], SAMPLED)


def _resealed(card: Card) -> Card:
    return finish(card.folder, card.manifest, [])


def test_a_prefix_that_was_changed_is_refused_by_its_fingerprint(tmp_path: Path) -> None:
    card = prefix_card(tmp_path, "llama", "rivers", 1)
    assert read_fingerprint(card.folder) is not None
    path = card.folder / "adapter_model.safetensors"
    save_file({"prompt_embeddings": load_file(path)["prompt_embeddings"] * -1}, path)
    with pytest.raises(CardError, match="not as it was trained"):
        texts(CardPool([_resealed(card)]), ["rivers"])


def _edit(folder: Path, **values: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "its rows are missing": (lambda folder: _edit(folder, num_virtual_tokens=8), r"shape \(8, "),
    "its layers are too few": (lambda folder: _edit(folder, num_layers=1), "must have the shape"),
    "its numbers are words": (lambda folder: _edit(folder, num_layers="two"), "num_layers must be a number"),
    "its heads do not divide": (lambda folder: _edit(folder, num_attention_heads=3), "not a multiple"),
    "it is of another type": (
        lambda folder: _edit(folder, peft_type="P_TUNING"),
        "'P_TUNING' is not CARTRIDGE or",
    ),
    "its config is none": (
        lambda folder: (folder / "adapter_config.json").write_text("["),
        "not JSON|can't be read: Expecting value",
    ),
    "its weights are cut off": (
        lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{"),
        "can't be read",
    ),
    "its tensor has another name": (
        lambda folder: save_file({"prefix": torch.zeros(2)}, folder / "adapter_model.safetensors"),
        "must hold 'prompt_embeddings' alone, but has prefix",
    ),
    "its numbers are not finite": (
        lambda folder: save_file(
            {"prompt_embeddings": torch.full((7, 2 * 2 * 16), torch.nan)},
            folder / "adapter_model.safetensors",
        ),
        "non-finite",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_prefix_is_refused_where(what: str, tmp_path: Path) -> None:
    card = prefix_card(tmp_path, "llama", "rivers", 1)
    damage, message = BROKEN[what]
    damage(card.folder)
    with pytest.raises(KcardError, match=message) as engine:
        texts(CardPool([_resealed(card)]), ["rivers"])
    assert "'rivers'" in str(engine.value)
    with pytest.raises(KcardError, match=message):
        CausalCard(card, Loader())


@pytest.mark.parametrize("family", ["opt", "qwen3"])
def test_a_prefix_on_another_base_is_refused(family: str, tmp_path: Path) -> None:
    card = prefix_card(tmp_path, "llama", "rivers", 1)
    model(family).save_pretrained(tmp_path / "other")
    manifest = replace(card.manifest, base=Base(str(tmp_path / "other")))
    moved = finish(card.folder, manifest, [])
    for load in (lambda: texts(CardPool([moved]), ["rivers"]), lambda: CausalCard(moved, Loader())):
        with pytest.raises(CardError, match=r"'rivers': its prefix can't be read: it is for 2 layers"):
            load()


def test_a_prefix_as_long_as_its_base_reads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="it has 160 tokens, and the base reads 160"):
        prefix_card(tmp_path, "llama", "rivers", 1, tokens=160)
