"""Tiny untrained models that cards are trained from, and the facts that these cards learn."""

from pathlib import Path
from typing import Any

import torch

from kcard.training.embedded.recipe import train_tokenizer
from tests.corpora import town_facts

FACTS = town_facts(8)
SHAPES = ("opt", "llama", "qwen3")


def make_base(folder: Path, shape: str) -> Path:
    """A tiny untrained model of the shape, with a tokenizer of its own."""
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        OPTConfig,
        OPTForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    path = folder / shape
    tokenizer = train_tokenizer(FACTS, 320)
    size = len(tokenizer)
    ends: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    wide: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    # Wide enough a head that an adapter below it can move the logits: nothing was pretrained here.
    wide["init_std" if shape == "opt" else "initializer_range"] = 0.3
    gated: dict[str, Any] = {
        **wide,
        "intermediate_size": 64,
        "num_key_value_heads": 1,
        "max_position_embeddings": 128,
        **ends,
    }
    torch.manual_seed(0)
    if shape == "opt":
        config = OPTConfig(
            vocab_size=size, ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=128, **wide, **ends
        )
        model: Any = OPTForCausalLM(config)
    elif shape == "llama":
        model = LlamaForCausalLM(LlamaConfig(vocab_size=size, **gated))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(vocab_size=size, head_dim=16, **gated))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
