"""Train the base of embedded LoRA cards: python -m recipes.base.train --output src/kcard/embedded/weights/base
--seconds 900

A small OPT is trained from scratch together with adapters, which are reset for every new world of invented facts
(facts.py). So the base learns to turn questions into statements, and adapts well, while only the adapter can store the
facts of a world (Finn et al., 2017, "Model-Agnostic Meta-Learning", in its first-order form). `--seconds` is wall time
on one core. The record is written beside the weights.
"""

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from kcard.cards.models.loader import quiet_peft
from kcard.training.base_trainer import cross_entropy
from kcard.training.embedded.muon import Muon
from kcard.training.embedded.recipe import BOS, EOS, PAD, Recipe, train_tokenizer
from kcard.training.embedded.trainee import (
    ADAPTED_LAYERS,
    initialize_adapter,
    optimizer,
    untrained,
)
from kcard.training.epochs import TrainingExample, bucketed, collate
from kcard.training.execution import autocast, one_thread
from kcard.training.run import cosine
from recipes.base.facts import Facts, World, english, numbers
from recipes.base.record import write_record
from recipes.digests import write_digests

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import OPTForCausalLM, PreTrainedTokenizerFast

RECIPE = Recipe(vocabulary=6000, batch_tokens=2048)
RANK = 100
STEPS, SPREAD = 150, (0.5, 1.0, 1.0, 1.5, 2.5)  # of an adapter: times one of these
LONGEST = 80
WARM, LAST = 30, 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with one_thread():
        train(args.output, args.seconds, args.seed)


def train(output: Path, seconds: float, seed: int) -> None:
    import torch

    torch.manual_seed(seed)
    facts = Facts(seed)
    tokenizer = make_tokenizer(facts)
    learner = Learner(untrained(len(tokenizer), RECIPE), tokenizer, seconds)
    while not learner.over:
        learner.live(facts, facts.world(), round(STEPS * facts.rng.choice(SPREAD)))
    output.mkdir(parents=True, exist_ok=True)
    model = learner.bare()
    model.half().save_pretrained(output)
    tokenizer.save_pretrained(output)
    parameters = sum(weight.numel() for weight in model.parameters())
    write_record(output, {**learner.facts, "seconds": round(seconds), "seed": seed, "parameters": parameters})
    write_digests(output)


def make_tokenizer(facts: Facts) -> "PreTrainedTokenizerFast":
    """Byte-level BPE of statements, questions, and lists of words and numbers that ought to be tokens."""
    world = facts.world(facts=3000, relations=60)
    # By their frequency in English, about: the more often a word stands here, the sooner it is one token.
    words = [
        " ".join([form] * max(1, round(20_000 / (rank + 500))))
        for rank, word in enumerate(english()[:8000])
        for form in (word, word.capitalize())
    ]
    listed = [*words, *(" ".join([number] * 25) for number in numbers())]
    return train_tokenizer(
        [*(text for pair in facts.pairs(world) for text in pair), *listed], RECIPE.vocabulary
    )


class Learner:
    """The base and an adapter on it, which learn until `seconds` are over, the base's rate falling with them."""

    def __init__(self, model: "OPTForCausalLM", tokenizer: "PreTrainedTokenizerFast", seconds: float) -> None:
        from peft import LoraConfig, get_peft_model

        self.model, self.tokenizer, self.seconds = model, tokenizer, seconds
        named = list(model.named_parameters())
        with quiet_peft():
            self.peft = get_peft_model(
                model, LoraConfig(r=RANK, lora_alpha=RANK, target_modules=ADAPTED_LAYERS)
            )
        for _, weight in named:
            weight.requires_grad_(True)
        self.driver = optimizer(named, RECIPE)
        self.steps = self.tokens = self.worlds = 0
        self.begun = time.monotonic()
        model.train()

    @property
    def share(self) -> float:
        return (time.monotonic() - self.begun) / self.seconds

    @property
    def over(self) -> bool:
        return self.share >= 1

    @property
    def facts(self) -> dict[str, Any]:
        return {"worlds": self.worlds, "steps": self.steps, "tokens": self.tokens}

    def bare(self) -> Any:
        """The base without the adapter."""
        return self.peft.unload()

    def live(self, facts: Facts, world: World, steps: int) -> None:
        """Learn a world for so many steps, with an adapter that knows nothing yet."""
        halves = initialize_adapter(self.peft)
        adapting = Muon(halves, lr=RECIPE.muon_rate, momentum=0.95, steps=4)
        rate, losses = cosine(steps, 10, 0.1), []
        for number, batch in zip(range(steps), self._batches(facts, world), strict=False):
            if self.over:
                return
            adapting.param_groups[0]["lr"] = RECIPE.muon_rate * rate(number)
            losses.append(self._step(batch, adapting))
        self.worlds += 1
        first, last = (sum(part) / len(part) for part in (losses[:20], losses[-20:]))
        share = f"{100 * self.share:.0f} %: world {self.worlds}"
        print(f"{share}, {steps} steps, loss {first:.2f} to {last:.2f}", flush=True)

    def _batches(self, facts: Facts, world: World) -> Iterator[list[TrainingExample]]:
        while True:
            pairs = list(facts.pairs(world))
            prompts = self._ids([f"{question}\n" if question else "" for question, _ in pairs])
            statements = self._ids([statement for _, statement in pairs])
            examples = [
                TrainingExample((BOS, *prompt[:LONGEST]), (*statement[:LONGEST], EOS))
                for prompt, statement in zip(prompts, statements, strict=True)
            ]
            yield from bucketed(examples, RECIPE.tokens_of_a_step, Random(facts.rng.random()))

    def _ids(self, texts: list[str]) -> list[list[int]]:
        ids = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [list(row) if text else [] for row, text in zip(ids, texts, strict=True)]

    def _step(self, batch: list[TrainingExample], adapting: Muon) -> float:
        import torch

        fall = LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * min(1.0, self.share)))
        for group in self.driver.param_groups:
            group["lr"] = (
                group.setdefault("initial_lr", group["lr"]) * min(1.0, (self.steps + 1) / WARM) * fall
            )
        part = self._loss(batch)
        part.backward()
        moved = [weight for weight in self.model.parameters() if weight.requires_grad]
        torch.nn.utils.clip_grad_norm_(moved, 1.0)
        for driver in (self.driver, adapting):
            driver.step()
            driver.zero_grad()
        self.steps, self.tokens = self.steps + 1, self.tokens + sum(map(len, batch))
        return part.item()

    def _loss(self, batch: list[TrainingExample]) -> "Tensor":
        """The mean over the statements' tokens; the question's have no label."""
        token_ids, labels = collate(batch, PAD)
        learned = labels[:, 1:] != -100
        with autocast("cpu"):
            states = self.model.model(input_ids=token_ids, use_cache=False).last_hidden_state[:, :-1]
            logits = self.model.lm_head(states[learned])
        targets = labels[:, 1:][learned]
        return cross_entropy(logits, targets, 1 / len(targets))


if __name__ == "__main__":
    main()
