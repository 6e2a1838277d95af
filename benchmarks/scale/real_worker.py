"""A worker that really loads cards and writes with them, in a process of its own."""

import logging
import os
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.scale.batching import Waiting, take

__all__ = ["Batch", "Setting", "make_cards", "memory_for", "work"]

WORDS = ("moon", "bird", "bridge", "law", "prize", "river", "song", "ship")


@dataclass(frozen=True)
class Setting:
    """`memory`: bytes of weights that a worker may hold; `most`: questions in a batch; `tokens`: of a document."""

    folders: tuple[Path, ...]
    memory: int
    most: int
    tokens: int


@dataclass(frozen=True)
class Batch:
    """What a worker did: the numbers of the questions, whether the card was in memory, and when (time.monotonic)."""

    questions: tuple[int, ...]
    hit: bool
    started: float
    finished: float


def make_cards(folder: Path, count: int, width: int = 512, layers: int = 4) -> tuple[Path, ...]:
    """Whole cards with random weights of their own that never end a document."""
    import torch
    from transformers import GenerationConfig, OPTConfig, OPTForCausalLM
    from transformers.utils.logging import disable_progress_bar

    from kcard.answer import Source
    from kcard.cards.format.folder import finish
    from kcard.manifest import Manifest, Prompt
    from kcard.training.tokenizer import train_tokenizer

    disable_progress_bar()
    tokenizer = train_tokenizer([f"Which {word} was the first in 1874?" for word in WORDS], 600)
    config = OPTConfig(
        vocab_size=600, hidden_size=width, word_embed_proj_dim=width, num_hidden_layers=layers,
        num_attention_heads=4, ffn_dim=4 * width, max_position_embeddings=128, pad_token_id=0, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    made = []
    for number in range(count):
        torch.manual_seed(number)
        where = folder / f"card{number}"
        model: Any = OPTForCausalLM(config)
        model.generation_config = GenerationConfig()
        model.save_pretrained(where)
        tokenizer.save_pretrained(where)
        finish(
            where, Manifest(name=f"card{number}", description="Random", prompt=Prompt()), [Source("Nothing.")]
        )
        made.append(where)
    return tuple(made)


def memory_for(folder: Path, cards: int) -> int:
    """Bytes in which the weights of so many cards like this one fit, and no more."""
    from kcard.cards.format.folder import Card
    from kcard.cards.lm import weights
    from kcard.cards.lm.engine import trees
    from kcard.cards.lm.loader import Loader

    return int((cards + 0.5) * trees.size(weights.read(Card.open(folder), Loader()).decoder))


def work(connection: Connection, setting: Setting, core: int | None) -> None:
    """Answer (question, card) pairs from the connection with a Batch each time, until None comes."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    import torch

    from kcard.cards.lm.loader import Loader
    from kcard.cards.pool import Pool
    from kcard.sampling import Sampling

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # these cards carry no fingerprint
    loader = Loader(memory=setting.memory)
    pool = Pool(setting.folders, loader=loader)
    sampling = Sampling(temperature=1.0, tokens=setting.tokens)
    for number in range(len(setting.folders)):  # each is verified once, at its first use
        pool.write(["Which moon was the first in 1874?"], [f"card{number}"], 1, sampling)
    connection.send("ready")
    waiting: Waiting = deque()
    while True:
        while not waiting or connection.poll():
            if (question := connection.recv()) is None:
                return
            waiting.append(question)
        started = time.monotonic()
        batch = take(waiting, setting.most)
        card = batch[0][1]
        hit = setting.folders[card] in loader.held
        texts = [f"Which {WORDS[q % len(WORDS)]} was the first in 1874?" for q, _ in batch]
        pool.write(texts, [f"card{card}"], 1, sampling)
        connection.send(Batch(tuple(q for q, _ in batch), hit, started, time.monotonic()))
