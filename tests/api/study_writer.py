"""A tiny chat model that a real server can have, trained by heart to write study material about a few passages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kcard.llms.prompts import messages
from kcard.types import Request
from tests.tiny_tokenizers import of_bytes

__all__ = ["POSITIONS", "writer"]

CHAT = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)
POSITIONS = 2048
STEPS, LEARNED = 100, 0.01  # at most, and the loss that is enough


def writer(folder: Path, lessons: Mapping[Request, str]) -> Path:
    """The model and its tokenizer, saved. Asked something else, it writes something like it. vLLM needs heads of 64."""
    torch.manual_seed(0)
    texts = [text for request, reply in lessons.items() for text in (reply, *_contents(request))]
    tokenizer = of_bytes(texts, size=1200)
    tokenizer.chat_template = CHAT
    config: Any = LlamaConfig
    model = LlamaForCausalLM(
        config(
            vocab_size=len(tokenizer), hidden_size=256, intermediate_size=512, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=POSITIONS,
            pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip
    _learn(model, [_row(tokenizer, request, reply) for request, reply in lessons.items()])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _contents(request: Request) -> list[str]:
    return [str(message["content"]) for message in messages(request)]


def _row(tokenizer: Any, request: Request, reply: str) -> tuple[list[int], int]:
    """Token ids of the prompt and the reply, and how many of them are the prompt's."""
    prompt = tokenizer.apply_chat_template(
        messages(request), add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return [*prompt, *tokenizer(reply, add_special_tokens=False)["input_ids"], 2], len(prompt)


def _learn(model: Any, rows: list[tuple[list[int], int]]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(STEPS):
        worst = 0.0
        for ids, prompt in rows:
            labels = torch.tensor([[-100] * prompt + ids[prompt:]])
            loss = model(input_ids=torch.tensor([ids]), labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            worst = max(worst, loss.item())
        if worst < LEARNED:
            return
