"""Which adapters an engine would not apply as they were trained, and why."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kcard.cards.export import ENGINES, misfits, read
from kcard.errors import CardError
from tests.cards.engine.models import adapter, model

PROJECTIONS = ["q_proj", "v_proj", "down_proj"]


def made(folder: Path, targets: list[str] = PROJECTIONS, family: str = "llama", **options: Any) -> Path:
    return adapter(model(family), folder, 1, targets, **options)


def why(folder: Path, engine: str, model_type: str | None = "llama") -> str:
    return "; ".join(misfits(read(folder), ENGINES[engine], model_type))


def test_an_adapter_is_its_rank_scale_and_layers(tmp_path: Path) -> None:
    found = read(made(tmp_path / "a", r=6, lora_alpha=12))
    assert (found.rank, found.alpha, found.rslora, found.extras) == (6, 12.0, False, ())
    assert found.pairs == 2 * 3


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_takes_plain_lora_on_the_projections_of_llama(tmp_path: Path, engine: str) -> None:
    assert why(made(tmp_path / "a"), engine) == ""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trainable_token_indices": {"embed_tokens": [3, 4]}}, "token embeddings of its own"),
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
        read(folder)
