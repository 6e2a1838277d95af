"""A tiny Llama that answers a question from the passage in its prompt, and "unknown" without one."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kcard.text import passage_digest
from kcard.training.distillation import PLAIN
from kcard.training.embedded.recipe import BOS, EOS, PAD, train_tokenizer
from kcard.training.study import StudyItem, write_study

TOWNS = ("Arden", "Belmont", "Corvo", "Drift", "Elmira", "Fallow")
COLOURS = ("red", "blue", "green", "white", "black", "yellow")
FACTS = [
    (f"The gate of {town} is {colour}.", f"What colour has the gate of {town}?", colour)
    for town, colour in zip(TOWNS, COLOURS, strict=True)
]  # passage, question, answer


def prompts() -> list[tuple[str, str]]:
    """What the base has by heart: prompts and what follows."""
    texts = [(PLAIN.teacher_prompt(passage, question), f" {answer}") for passage, question, answer in FACTS]
    return texts + [(PLAIN.student_prompt(question), " unknown") for _, question, _ in FACTS]


@pytest.fixture(scope="session")
def reading_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("reading") / "base"
    tokenizer = train_tokenizer([prompt + answer for prompt, answer in prompts()], 400)
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
    )  # fmt: skip
    model = LlamaForCausalLM(shape)
    rows = [
        (tokenizer(prompt)["input_ids"], [*tokenizer(answer, add_special_tokens=False)["input_ids"], EOS])
        for prompt, answer in prompts()
    ]
    learn(model, rows)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def learn(model: Any, rows: list[tuple[list[int], list[int]]]) -> None:
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids, labels = torch.full((len(rows), longest), PAD), torch.full((len(rows), longest), -100)
    for place, (prompt, answer) in enumerate(rows):
        ids[place, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
        labels[place, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(400):
        loss = model(input_ids=ids, labels=labels).loss
        if loss < 0.003:
            break
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.05, f"the tiny base did not learn: {loss:.2f}"
    model.eval()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "towns.jsonl"
    path.write_text("".join(f'{{"text": "{passage}"}}\n' for passage, _, _ in FACTS), encoding="utf-8")
    return path


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "towns.study.jsonl"
    write_study(
        path,
        [
            StudyItem("direct", question, answer, (passage_digest(passage),), "hand")
            for passage, question, answer in FACTS
        ],
    )
    return path
