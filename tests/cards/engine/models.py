"""Tiny models of every family that the engine knows, and adapters on them."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from kcard.cards.models import weights
from kcard.cards.models.batched import families
from kcard.cards.models.batched.decoder import Decoder
from kcard.cards.models.batched.generate import Prompts, batched, decode, log_probabilities
from kcard.cards.models.transformers_backend import log_probabilities as of_transformers
from kcard.token_sampling import Sampler

WORDS = 320
PROMPTS = ((1, 6, 7, 8, 9, 10), (1, 20, 21))
TOKENS = 40  # more than the buffers hold at first
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

# The configuration of each, and two sets of modules that adapters of it change.
FAMILIES: Mapping[str, tuple[dict[str, Any], tuple[list[str], list[str]]]] = {
    "opt": (
        {**COMMON, "ffn_dim": 64, "word_embed_proj_dim": 32},
        (["q_proj", "v_proj", "fc1"], ["k_proj", "fc2", "out_proj"]),
    ),
    "llama": (
        {**GROUPED, "attention_bias": True},
        (["q_proj", "k_proj", "up_proj", "down_proj"], ["gate_proj"]),
    ),
    "mistral": ({**GROUPED, "sliding_window": None}, (["v_proj", "o_proj"], ["q_proj"])),
    "qwen2": (GROUPED, (["q_proj", "v_proj"], ["lm_head", "v_proj"])),
    "qwen3": ({**GROUPED, "head_dim": 16}, (["q_proj", "o_proj", "gate_proj"], ["k_proj"])),
    "gpt-neox": (
        {**COMMON, "intermediate_size": 64},
        (["query_key_value", "dense"], ["dense_4h_to_h"]),
    ),
}


def model(family: str, seed: int = 0) -> Any:
    """Random weights so spread that the last bits of a float decide nothing."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family.replace("-", "_"), **FAMILIES[family][0])
    made = AutoModelForCausalLM.from_config(config)
    for weight in made.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.25)
        else:
            weight.data.add_(torch.randn_like(weight) * 0.1)
    made.generation_config.eos_token_id = None
    return made.eval()


def adapter(base: Any, folder: Path, seed: int, targets: list[str], **options: Any) -> Path:
    """A LoRA adapter with weights of its own, as peft saves it. The base stays as it is."""
    torch.manual_seed(seed)
    given = {"r": 4, "lora_alpha": 8, "init_lora_weights": False, **options}
    config = LoraConfig(task_type="CAUSAL_LM", target_modules=targets, **given)
    get_peft_model(copy.deepcopy(base), config).save_pretrained(str(folder), save_embedding_layers=False)
    if options.get("trainable_token_indices") is not None:
        # Peft begins with the rows of the base.
        path = folder / "adapter_model.safetensors"
        tensors = load_file(path)
        for name in tensors:
            if name.endswith("trainable_tokens_delta"):
                tensors[name] = torch.randn_like(tensors[name]) * 0.4
        save_file(tensors, path, {"format": "pt"})
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


def decoder_of(base: Any) -> Decoder:
    return families.decoder(weights.of_model(base))


def write(decoder: Decoder, cards: int) -> list[Any]:
    """What the engine writes by greedy search: by card, by prompt, by document, of which there are two."""
    asked = Prompts(ids=PROMPTS * cards)
    sampler = Sampler(torch.zeros(len(asked) * 2, dtype=torch.int64), 0.0, 50)
    found = decode(decoder, batched(decoder, asked, 2), sampler, TOKENS, ())
    shaped: list[Any] = found.view(cards, len(PROMPTS), 2, -1).tolist()
    return shaped


def assert_log_probabilities(decoder: Decoder, base: Any, asked: Prompts, texts: list[list[int]]) -> None:
    """The engine gives texts after the prompts the log-probabilities that transformers gives them."""
    expected = of_transformers(base, asked, texts, 0)
    for own, theirs in zip(log_probabilities(decoder, asked, texts), expected, strict=True):
        assert own == pytest.approx(theirs, abs=1e-4)
