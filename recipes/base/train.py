"""Train the base of embedded LoRA cards: python -m recipes.base.train --output cards/weights/base --seconds 2400

A small OPT, from scratch, on invented facts (facts.py): it learns how a question becomes a statement, and which words
of the question matter, so that an adapter has to learn the facts alone. `--seconds` is wall time on one core. The
record is written beside the weights.
"""

import argparse
import math
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from kcard.training.batches import Example, bucketed, collate
from kcard.training.cross_entropy import cross_entropy
from kcard.training.precision import autocast
from kcard.training.recipe import Recipe
from kcard.training.threads import one_thread
from kcard.training.tokenizer import BOS, EOS, PAD, train_tokenizer
from kcard.training.trainee import optimizers, parted, untrained
from recipes.base.facts import Facts, english, numbers
from recipes.base.record import write_record
from recipes.digests import write_digests

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

RECIPE = Recipe(vocabulary=6000, batch_tokens=2048)
EPOCH = 3000
KNOWN_FACTS = 6000
LONGEST = 80
WARM, LAST = 30, 0.03
TOLD = 200  # steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with one_thread():
        train(args.output, args.seconds, args.seed)


def train(output: Path, seconds: float, seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    facts = Facts(seed, KNOWN_FACTS)
    tokenizer = make_tokenizer(facts)
    model = untrained(len(tokenizer), RECIPE)
    told = learn(model, tokenizer, facts, seconds)
    output.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(output)
    tokenizer.save_pretrained(output)
    parameters = sum(weight.numel() for weight in model.parameters())
    write_record(output, {**told, "seed": seed, "parameters": parameters})
    write_digests(output)


def make_tokenizer(facts: Facts) -> "PreTrainedTokenizerFast":
    """Byte-level BPE of statements, questions, and lists of words and numbers that ought to be tokens."""
    pairs = [text for pair in facts.pairs(9000) for text in pair]
    # By their frequency in English, about: the more often a word stands here, the sooner it is one token.
    words = [
        " ".join([form] * max(1, round(20_000 / (rank + 500))))
        for rank, word in enumerate(english()[:8000])
        for form in (word, word.capitalize())
    ]
    return train_tokenizer(
        [*pairs, *words, *(" ".join([number] * 25) for number in numbers())], RECIPE.vocabulary
    )


def learn(
    model: "OPTForCausalLM", tokenizer: "PreTrainedTokenizerFast", facts: Facts, seconds: float
) -> dict[str, Any]:
    """Until the time is over, the rate falling with it: what was done."""
    drivers = optimizers(*parted(model.named_parameters()), RECIPE)
    begun, steps, tokens, recent = time.monotonic(), 0, 0, 0.0
    model.train()
    while True:
        for batch in batches(tokenizer, facts):
            share = (time.monotonic() - begun) / seconds
            if share >= 1:
                loss = round(recent / (steps % TOLD or TOLD), 3)
                return {"steps": steps, "tokens": tokens, "seconds": round(seconds), "loss": loss}
            rate = min(1.0, (steps + 1) / WARM) * (LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * share)))
            for group in (group for driver in drivers for group in driver.param_groups):
                group["lr"] = group["initial_lr"] * rate
            recent = (recent if steps % TOLD else 0.0) + step(model, drivers, batch)
            steps, tokens = steps + 1, tokens + sum(map(len, batch))
            if steps % TOLD == 0:
                print(f"step {steps}, {100 * share:.0f} %: loss {recent / TOLD:.3f}", flush=True)


def batches(tokenizer: "PreTrainedTokenizerFast", facts: Facts) -> list[list[Example]]:
    pairs = list(facts.pairs(EPOCH))
    prompts = ids(tokenizer, [f"{question}\n" if question else "" for question, _ in pairs])
    statements = ids(tokenizer, [statement for _, statement in pairs])
    examples = [
        Example((BOS, *prompt[:LONGEST]), (*statement[:LONGEST], EOS))
        for prompt, statement in zip(prompts, statements, strict=True)
    ]
    return bucketed(examples, RECIPE.batch_tokens, Random(facts.rng.random()))


def ids(tokenizer: "PreTrainedTokenizerFast", texts: list[str]) -> list[list[int]]:
    found = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [list(row) if text else [] for row, text in zip(found, texts, strict=True)]


def step(model: "OPTForCausalLM", drivers: list[Any], batch: list[Example]) -> float:
    import torch

    part = loss(model, batch)
    part.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for driver in drivers:
        driver.step()
        driver.zero_grad()
    return part.item()


def loss(model: "OPTForCausalLM", batch: list[Example]) -> "Tensor":
    """The mean over the statements' tokens; the question's have no label."""
    token_ids, labels = collate(batch, PAD)
    learned = labels[:, 1:] != -100
    with autocast("cpu"):
        states = model.model(input_ids=token_ids, use_cache=False).last_hidden_state[:, :-1]
        logits = model.lm_head(states[learned])
    wanted = labels[:, 1:][learned]
    return cross_entropy(logits, wanted, 1 / len(wanted))


if __name__ == "__main__":
    main()
