"""Invented worlds, and a small Llama that learned on thousands of them to answer from the passage in its prompt.

A passage states one fact about a town, which has two. Each relation has several wordings of statements and of
questions, the same in all worlds, while names are drawn anew: the base knows every wording, and of a new world nothing.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from kcard.training.distillation.prompts import PLAIN
from kcard.training.tokenizer import BOS, EOS, PAD, train_tokenizer

__all__ = ["HELD_OUT", "TOWNS", "WORDINGS", "Fact", "base", "world"]

Row = tuple[list[int], list[float]]

# Of each relation: statements, and questions, of which the last HELD_OUT are never studied.
RELATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "founder": (
        ("{s} was founded by {o}.", "{o} founded {s}.", "The founder of {s} is {o}."),
        (
            "Who founded {s}?",
            "By whom was {s} founded?",
            "Who is the founder of {s}?",
            "Which person started {s}?",
        ),
    ),
    "mayor": (
        ("The mayor of {s} is {o}.", "{o} is mayor of {s}.", "{s} is led by {o}."),
        (
            "Who is the mayor of {s}?",
            "Who is mayor in {s}?",
            "By whom is {s} led?",
            "Who heads the town of {s}?",
        ),
    ),
    "river": (
        ("{s} lies on the river {o}.", "The river {o} flows through {s}.", "The river of {s} is the {o}."),
        (
            "Which river does {s} lie on?",
            "Which river flows through {s}?",
            "What is the river of {s}?",
            "What is the water that runs by {s}?",
        ),
    ),
    "dish": (
        ("The dish of {s} is {o}.", "People in {s} eat {o}.", "{s} is known for the dish {o}."),
        (
            "What is the dish of {s}?",
            "What do people in {s} eat?",
            "Which dish is {s} known for?",
            "What is cooked in {s}?",
        ),
    ),
    "painter": (
        ("{o} painted the hall of {s}.", "The hall of {s} was painted by {o}.", "The painter of {s} is {o}."),
        (
            "Who painted the hall of {s}?",
            "By whom was the hall of {s} painted?",
            "Who is the painter of {s}?",
            "Which artist worked in {s}?",
        ),
    ),
    "market": (
        ("The market of {s} sells {o}.", "{s} trades in {o}.", "{o} is sold in {s}."),
        (
            "What does the market of {s} sell?",
            "What does {s} trade in?",
            "What is sold in {s}?",
            "Which goods does one buy in {s}?",
        ),
    ),
    "saint": (
        ("The saint of {s} is {o}.", "{s} honours the saint {o}.", "The church of {s} is named after {o}."),
        (
            "Who is the saint of {s}?",
            "Which saint does {s} honour?",
            "After whom is the church of {s} named?",
            "Who protects the people of {s}?",
        ),
    ),
    "tower": (
        ("The tower of {s} is called {o}.", "{o} is the tower of {s}.", "Above {s} stands the tower {o}."),
        (
            "What is the tower of {s} called?",
            "Which is the tower of {s}?",
            "Which tower stands above {s}?",
            "What is the high building in {s}?",
        ),
    ),
}
WORDINGS = 4
HELD_OUT = 1
FACTS = 2  # a town
NAMES = 100
ROWS = 32  # a step
ASKED = 2  # questions a row
ALONE = 0.05  # rows without a passage
TOWNS = 60
WIDTH, LAYERS = 128, 3
RATES = (0.02, 3e-3)  # of Muon for matrices, and of AdamW for the rest
WARM = 50
FIRST = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z")
MIDDLE = ("a", "e", "i", "o", "u", "ai", "ou")
LAST = ("l", "n", "r", "s", "t", "x", "m")


@dataclass(frozen=True)
class Fact:
    """`statement`: the passage that states it."""

    relation: str
    subject: str
    answer: str
    statement: str

    def question(self, wording: int) -> str:
        return RELATIONS[self.relation][1][wording].format(s=self.subject)


def words() -> list[str]:
    """The names, always the same."""
    rng, found = Random("names"), set[str]()
    while len(found) < NAMES:
        name = (
            rng.choice(FIRST) + rng.choice(MIDDLE) + rng.choice(FIRST) + rng.choice(MIDDLE) + rng.choice(LAST)
        )
        found.add(name.capitalize())
    return sorted(found)


def world(seed: int | str, towns: int) -> list[Fact]:
    """FACTS of each town; the same for the same seed."""
    rng, pool = Random(f"world {seed}"), words()
    found = []
    for subject in rng.sample(pool, towns):
        relations, answers = rng.sample(sorted(RELATIONS), FACTS), rng.sample(pool, FACTS)
        for relation, answer in zip(relations, answers, strict=True):
            stated = rng.choice(RELATIONS[relation][0]).format(s=subject, o=answer)
            found.append(Fact(relation, subject, answer, stated))
    return found


def base(folder: Path, steps: int, seed: int = 0) -> Path:
    """The Llama, trained for so many steps if it is not in `folder` yet."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if (folder / "config.json").is_file():
        return folder
    facts = [fact for number in range(20) for fact in world(f"tokens {number}", TOWNS)]
    texts = [
        f"{fact.statement}\n\n{PLAIN.asked(fact.question(n))}" for fact in facts for n in range(WORDINGS)
    ]
    tokenizer = train_tokenizer([*texts, *words() * 20], 1400)
    torch.manual_seed(seed)
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256, pad_token_id=PAD,
        bos_token_id=BOS, eos_token_id=EOS, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(shape)
    taught(model, batches(tokenizer, seed), steps)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def batches(tokenizer: Any, seed: int) -> Iterator[list[Row]]:
    """Statements of ever new worlds, each followed by two questions with their answer; one row in twenty has none, as
    the student is asked, and nothing tells its answer but chance."""
    rng = Random(f"base {seed}")
    for number in count():
        rows = []
        for fact in rng.sample(world(f"{seed} {number}", ROWS), ROWS):
            told = "" if rng.random() < ALONE else f"{fact.statement}\n\n"
            asked = [fact.question(n) for n in rng.sample(range(WORDINGS), ASKED)]
            rows.append(encoded(tokenizer, told, asked, fact.answer))
        yield rows


def encoded(tokenizer: Any, told: str, asked: Sequence[str], answer: str) -> Row:
    """Token ids, and what each weighs in the loss: an answer 1, other text a tenth."""
    ids, weights = [BOS], [0.0]
    for number, text in enumerate(asked):
        before = told if number == 0 else "\n\n"
        read = tokenizer(before + PLAIN.asked(text), add_special_tokens=False)["input_ids"]
        learned = tokenizer(f" {answer}", add_special_tokens=False)["input_ids"]
        learned = [*learned, EOS] if number + 1 == len(asked) else learned
        ids += [*read, *learned]
        weights += [0.1] * len(read) + [1.0] * len(learned)
    return ids, weights


def taught(model: Any, rows: Iterator[list[Row]], steps: int) -> None:
    """Muon for the matrices and AdamW for the rest, under one schedule, as the embedded card is trained."""
    import torch
    from torch.nn.functional import cross_entropy

    from kcard.training.loop import cosine
    from kcard.training.muon import Muon
    from kcard.training.precision import autocast
    from kcard.training.trainee import parted

    matrices, rest = parted(model.named_parameters())
    optimizers: list[Any] = [
        Muon(matrices, lr=RATES[0], weight_decay=0.01),
        torch.optim.AdamW(rest, lr=RATES[1], betas=(0.9, 0.98), weight_decay=0.01),
    ]
    rate = cosine(steps, WARM)
    for step in range(steps):
        batch = next(rows)
        longest = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([row + [PAD] * (longest - len(row)) for row, _ in batch])
        weights = torch.tensor([row + [0.0] * (longest - len(row)) for _, row in batch])[:, 1:]
        with autocast("cpu"):
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        losses = cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (losses * weights.flatten()).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, peak in zip(optimizers, RATES, strict=True):
            optimizer.param_groups[0]["lr"] = peak * rate(step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 100 == 0 or step + 1 == steps:
            answers = (losses * (weights.flatten() == 1)).sum() / (weights == 1).sum()
            print(
                f"base: step {step} of {steps}, loss of an answer token {answers.item():.2f}", file=sys.stderr
            )
