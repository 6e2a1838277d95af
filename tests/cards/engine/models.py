"""Tiny models of every family that the engine knows, and adapters on them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

__all__ = ["FAMILIES", "adapter", "continued", "greedy", "is_greedy", "model"]

WORDS = 320
COMMON: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 160,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED: dict[str, Any] = {**COMMON, "intermediate_size": 64, "num_key_value_heads": 2}

# How each is made, and two sets of modules that adapters of it change.
FAMILIES: Mapping[str, tuple[Callable[[], Any], tuple[list[str], list[str]]]] = {
    "opt": (
        lambda: OPTForCausalLM(OPTConfig(ffn_dim=64, word_embed_proj_dim=32, **COMMON)),
        (["q_proj", "v_proj", "fc1"], ["k_proj", "fc2", "out_proj"]),
    ),
    "llama": (
        lambda: LlamaForCausalLM(LlamaConfig(**GROUPED, attention_bias=True)),
        (["q_proj", "k_proj", "up_proj", "down_proj"], ["gate_proj"]),
    ),
    "mistral": (
        lambda: MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=None)),
        (["v_proj", "o_proj"], ["q_proj"]),
    ),
    "qwen2": (
        lambda: Qwen2ForCausalLM(Qwen2Config(**GROUPED)),
        (["q_proj", "v_proj"], ["lm_head", "v_proj"]),
    ),
    "qwen3": (
        lambda: Qwen3ForCausalLM(Qwen3Config(**GROUPED, head_dim=16)),
        (["q_proj", "o_proj", "gate_proj"], ["k_proj"]),
    ),
    "gpt-neox": (
        lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**COMMON, intermediate_size=64)),
        (["query_key_value", "dense"], ["dense_4h_to_h"]),
    ),
}


def model(family: str, seed: int = 0) -> Any:
    """Random weights so spread that the last bits of a float decide nothing."""
    torch.manual_seed(seed)
    made = FAMILIES[family][0]()
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.25) if weight.dim() > 1 else weight.data.add_(
            torch.randn_like(weight) * 0.1
        )
    made.generation_config.eos_token_id = None
    return made.eval()


def adapter(base: Any, folder: Path, seed: int, targets: list[str], **options: Any) -> Path:
    """A LoRA adapter with weights of its own, as peft saves it. The base stays as it is."""
    import copy

    torch.manual_seed(seed)
    given = {"r": 4, "lora_alpha": 8, "init_lora_weights": False, **options}
    config = LoraConfig(task_type="CAUSAL_LM", target_modules=targets, **given)
    get_peft_model(copy.deepcopy(base), config).save_pretrained(str(folder), save_embedding_layers=False)
    return folder


def continued(model: Any, prompt: list[int], tokens: int) -> list[int]:
    """What transformers writes after the prompt, by greedy search."""
    ids = torch.tensor([prompt])
    options: dict[str, Any] = {"max_new_tokens": tokens, "do_sample": False}
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **options)
    return [int(i) for i in out[0, len(prompt) :]]


def greedy(model: Any, prompts: Sequence[Sequence[int]], written: Sequence[Sequence[int]]) -> list[list[int]]:
    """The most probable token of transformers at each place of what was written after each prompt.

    Where that is what was written, it is what greedy search writes, at the cost of one pass instead of one a token.
    """
    rows = [[*prompt, *ids] for prompt, ids in zip(prompts, written, strict=True)]
    longest = max(map(len, rows))
    padded = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    with torch.inference_mode():
        best = model(input_ids=padded, attention_mask=torch.ones_like(padded)).logits.argmax(-1).tolist()
    return [
        found[len(prompt) - 1 : len(row) - 1] for prompt, row, found in zip(prompts, rows, best, strict=True)
    ]


def is_greedy(model: Any, prompts: Sequence[Sequence[int]], by_prompt: Sequence[Sequence[list[int]]]) -> bool:
    """Whether all documents of each prompt are those of greedy search with transformers."""
    first = [documents[0] for documents in by_prompt]
    alike = all(document == documents[0] for documents in by_prompt for document in documents)
    return alike and greedy(model, prompts, first) == first
