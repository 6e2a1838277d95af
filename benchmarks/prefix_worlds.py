"""Invented worlds, and a tiny Llama that answers questions about the statements before them, several at a time.

A prefix stands for a long text, so its base must find one statement among many; names are drawn anew in each row.
"""

import sys
from pathlib import Path
from random import Random
from typing import Any

from kcard.training.distillation.prompts import PLAIN
from kcard.training.tokenizer import BOS, EOS, PAD, train_tokenizer

__all__ = ["Fact", "base", "question", "statement", "world"]

Fact = tuple[str, str, str]  # relation, subject, answer
RELATIONS = ("mayor", "river", "saint", "dish")
STATEMENTS, QUESTIONS = 10, 4  # a row: most statements, and questions
ROWS = 24  # a step
RATES = (0.02, 3e-3)  # of Muon for matrices, and of AdamW for the rest


def statement(fact: Fact) -> str:
    return "The {} of {} is {}.".format(*fact)


def question(fact: Fact) -> str:
    return "What is the {} of {}?".format(*fact[:2])


def names() -> list[str]:
    return [
        a + b + c
        for a in ("Ba", "De", "Fi", "Go", "Lu")
        for b in ("ra", "ne", "ti", "so", "mu")
        for c in ("x", "n", "l", "s")
    ]


def world(seed: int | str, count: int) -> list[Fact]:
    """So many facts, of different relations or subjects; the same for the same seed."""
    rng = Random(f"world {seed}")
    subjects = [(relation, name) for relation in RELATIONS for name in names()]
    return [(*pair, rng.choice(names())) for pair in rng.sample(subjects, count)]


def base(folder: Path, steps: int) -> Path:
    """The Llama, trained for so many steps unless it is in `folder` already."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import LlamaConfig, LlamaForCausalLM

    from kcard.training.loop import cosine
    from kcard.training.muon import Muon
    from kcard.training.trainee import parted

    if (folder / "config.json").is_file():
        return folder
    facts = [fact for seed in range(30) for fact in world(f"tokens {seed}", 40)]
    tokenizer = train_tokenizer(
        [f"{statement(fact)} {PLAIN.asked(question(fact))} {fact[2]}" for fact in facts], 700
    )
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=96, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=512, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
        tie_word_embeddings=True,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(shape)
    matrices, rest = parted(model.named_parameters())
    optimizers: list[Any] = [
        Muon(matrices, lr=RATES[0]),
        torch.optim.AdamW(rest, lr=RATES[1], betas=(0.9, 0.98)),
    ]
    rate = cosine(steps, 50)
    for step in range(steps):
        rows = [_row(tokenizer, f"{step} {number}") for number in range(ROWS)]
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([row + [PAD] * (longest - len(row)) for row, _ in rows])
        weights = torch.tensor([row + [0.0] * (longest - len(row)) for _, row in rows])[:, 1:].flatten()
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        losses = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        (losses @ weights / weights.sum()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, peak in zip(optimizers, RATES, strict=True):
            optimizer.param_groups[0]["lr"] = peak * rate(step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0 or step + 1 == steps:
            print(
                f"base: step {step} of {steps}, loss {losses[weights == 1].mean().item():.2f}",
                file=sys.stderr,
            )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _row(tokenizer: Any, seed: str) -> tuple[list[int], list[float]]:
    """Token ids, and what each weighs in the loss: an answer 1, other text a tenth."""
    rng = Random(f"row {seed}")
    facts = world(seed, rng.randint(1, STATEMENTS))
    ids, weights = [BOS], [0.0]
    told = " ".join(map(statement, facts))
    for number in range(QUESTIONS):
        fact = rng.choice(facts)
        before = f"{told}\n\n" if number == 0 else "\n\n"
        read = tokenizer(before + PLAIN.asked(question(fact)), add_special_tokens=False)["input_ids"]
        learned = tokenizer(f" {fact[2]}\n", add_special_tokens=False)["input_ids"]
        ids += [*read, *learned]
        weights += [0.1] * len(read) + [1.0] * len(learned)
    return ids, weights
