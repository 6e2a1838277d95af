"""Tiny untrained models that cards are trained from, and the facts that these cards learn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kcard.training.embedded.recipe import train_tokenizer
from tests.corpora import town_facts

FACTS = town_facts(8)
SHAPES = ("opt", "llama", "qwen3")
# Wide enough that an adapter can move the logits: nothing was pretrained here.
DEVIATION = 0.3


def make_base(folder: Path, shape: str, texts: Sequence[str] = FACTS, **options: Any) -> Path:
    """A tiny untrained model of the shape, with a tokenizer of these texts; `options` of its configuration."""
    from transformers import AutoConfig, AutoModelForCausalLM

    path = folder / shape
    tokenizer = train_tokenizer(texts, 320)
    configuration: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    if shape == "opt":
        configuration |= {"ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": DEVIATION}
    else:
        configuration |= {"intermediate_size": 64, "num_key_value_heads": 1, "initializer_range": DEVIATION}
    if shape == "qwen3":
        configuration["head_dim"] = 16
    torch.manual_seed(0)
    config = AutoConfig.for_model(shape, **configuration | options)
    AutoModelForCausalLM.from_config(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
