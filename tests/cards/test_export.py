"""Which adapters an engine would not apply as they were trained, and why."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import processors

from kcard.cards.export import ENGINES, Expected, expected, misfits, read_adapter, text_prompt
from kcard.cards.fingerprint import Fingerprint, Probe
from kcard.cards.models.prompting import prompt_ids
from kcard.errors import CardError
from tests.cards.engine.models import adapter, model
from tests.tiny_tokenizers import of_bytes

PROJECTIONS = ["q_proj", "v_proj", "down_proj"]


def made(folder: Path, targets: list[str] = PROJECTIONS, family: str = "llama", **options: Any) -> Path:
    return adapter(model(family), folder, 1, targets, **options)


def why(folder: Path, engine: str, model_type: str | None = "llama") -> str:
    return "; ".join(misfits(read_adapter(folder), ENGINES[engine], model_type))


def test_an_adapter_is_its_rank_scale_and_layers(tmp_path: Path) -> None:
    found = read_adapter(made(tmp_path / "a", r=6, lora_alpha=12))
    assert (found.rank, found.alpha, found.rslora, found.extras) == (6, 12.0, False, ())
    assert found.pairs == 2 * 3


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_takes_plain_lora_on_the_projections_of_llama(tmp_path: Path, engine: str) -> None:
    assert why(made(tmp_path / "a"), engine) == ""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trainable_token_indices": {"embed_tokens": [3, 4]}}, "its own token embeddings"),
        ({"modules_to_save": ["lm_head"]}, "whole layers"),
        ({"use_dora": True}, "DoRA"),
        ({"bias": "lora_only"}, "biases"),
        ({"rank_pattern": {"q_proj": 2}}, "ranks that differ"),
        ({"alpha_pattern": {"q_proj": 2}}, "scales that differ"),
    ],
)
def test_no_engine_is_given_more_than_low_rank_additions(
    tmp_path: Path, engine: str, options: dict[str, Any], words: str
) -> None:
    assert words in why(made(tmp_path / "a", **options), engine)


def test_lora_on_embeddings_and_on_the_head_is_no_plain_adapter(tmp_path: Path) -> None:
    assert "embeddings" in why(made(tmp_path / "a", ["q_proj", "embed_tokens"]), "vllm")
    assert "head" in why(made(tmp_path / "b", ["q_proj", "lm_head"]), "vllm")


def test_only_vllm_scales_as_rslora_asks(tmp_path: Path) -> None:
    folder = made(tmp_path / "a", use_rslora=True)
    assert [engine for engine in ENGINES if "rsLoRA" not in why(folder, engine)] == ["vllm"]


def test_vllm_runs_gpt_neox_but_no_adapters_on_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "a", ["query_key_value"], "gpt-neox")
    assert "type gpt_neox" in why(folder, "vllm", "gpt_neox")


def test_a_rank_beyond_what_vllm_allows_is_refused_by_vllm_alone(tmp_path: Path) -> None:
    folder = made(tmp_path / "a")
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    (folder / "adapter_config.json").write_text(json.dumps(config | {"r": 600}), encoding="utf-8")
    assert "600" in why(folder, "vllm")
    assert why(folder, "llama.cpp") == ""


def test_a_beginning_that_changes_the_base_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "a")
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    (folder / "adapter_config.json").write_text(json.dumps(config | {"init_lora_weights": "pissa"}), "utf-8")
    assert "pissa" in why(folder, "vllm")


def test_tensors_that_the_config_does_not_tell_of_are_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "a")
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors["base_model.model.model.norm.weight"] = torch.ones(32)
    save_file(tensors, folder / "adapter_model.safetensors")
    assert "model.norm.weight" in why(folder, "vllm")


def test_a_broken_adapter_is_named(tmp_path: Path) -> None:
    folder = made(tmp_path / "a")
    (folder / "adapter_model.safetensors").write_bytes(b"nothing")
    with pytest.raises(CardError, match="can't be read"):
        read_adapter(folder)


# Prompts as text: what an engine's tokenizer makes of them is what the card was trained to read.

TEXTS = ["The Rhine ends in the North Sea.", "The Danube ends in the Black Sea."]
QUESTION = "Where does the Rhine end?"


def fingerprint(tokenizer: Any, card: list[float], base: list[float], text: str = TEXTS[0]) -> Fingerprint:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][: len(card)]
    prompt = tuple(prompt_ids(tokenizer, QUESTION + "\n"))
    return Fingerprint("float32", (Probe(QUESTION, text, prompt, tuple(ids), tuple(card), tuple(base)),))


@pytest.mark.parametrize(("bos", "before"), [(True, ""), (False, "<s>")])
def test_the_text_brings_the_bos_token_only_where_the_tokenizer_does_not(bos: bool, before: str) -> None:
    tokenizer = of_bytes(TEXTS, bos=bos)
    prompt = text_prompt("rivers", tokenizer, "{question}\n", None)
    assert prompt.before == before
    sent = tokenizer(prompt.before + prompt.template.replace("{question}", QUESTION))["input_ids"]
    assert sent == prompt_ids(tokenizer, f"{QUESTION}\n")
    assert sent[0] == tokenizer.bos_token_id


def test_a_tokenizer_that_ends_texts_can_not_be_asked_with_text() -> None:
    tokenizer = of_bytes(TEXTS)
    frame = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.backend_tokenizer.post_processor = frame
    with pytest.raises(CardError, match=r"adds special tokens differently: use kcard serve"):
        text_prompt("rivers", tokenizer, "{question}\n", None)


def test_the_token_that_the_adapter_moves_most_shows_it() -> None:
    tokenizer = of_bytes(TEXTS)
    found = expected(tokenizer, fingerprint(tokenizer, [-0.1, -0.2, -0.1, -3.0], [-0.2, -7.0, -4.0, -12.0]))
    ids = tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    prompt = prompt_ids(tokenizer, QUESTION + "\n")
    assert found == [
        Expected(
            text=tokenizer.decode([*prompt[1:], ids[0]]),
            ids=(*prompt, ids[0]),
            token=tokenizer.decode([ids[1]]),
            card=-0.2,
            base=-7.0,
        )
    ]


def test_what_neither_the_card_is_sure_of_nor_the_adapter_moves_shows_nothing() -> None:
    tokenizer = of_bytes(TEXTS)
    assert expected(tokenizer, fingerprint(tokenizer, [-0.1, -3.0], [-0.2, -12.0])) == []
    assert expected(tokenizer, None) == []


def test_a_whole_model_is_shown_by_what_it_is_sure_of() -> None:
    tokenizer = of_bytes(TEXTS)
    (found,) = expected(tokenizer, fingerprint(tokenizer, [-2.0, -0.5, -0.1], []))
    assert (found.card, found.base) == (-0.1, None)


def test_tokens_that_no_text_gives_are_shown_as_ids() -> None:
    tokenizer = of_bytes(TEXTS)
    kept = fingerprint(tokenizer, [-0.1, -0.1], [-5.0, -9.0], "a b")
    row = kept.rows[0]
    # Single bytes where the tokenizer would have joined them.
    split = Probe(row.question, row.text, (*row.prompt, *tokenizer.convert_tokens_to_ids(["T", "h", "e"])), *(
        (row.continuation, row.card, row.base)
    ))  # fmt: skip
    (found,) = expected(tokenizer, Fingerprint("float32", (split,)))
    assert found.text == ""
    assert found.ids[: len(split.prompt)] == split.prompt
