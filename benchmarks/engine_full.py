"""Embedded cards, which are tiny whole models or adapters on a tiny base: stacked against one after another.

    python -m benchmarks.engine_full [--cards 8] [--adapters] [--questions 1] [--documents 3] [--tokens 64] [--json]
    python -m benchmarks.engine_full --path CARD --path CARD ...

Without --path the cards are random models of the shape of an embedded card, half of them with the token prompt and
half with the encoder prefix, or with --adapters random adapters on the embedded base; with it they are real ones.
Figures are medians over --repeats rounds, each of which runs every procedure once, from question to document: all cards
stacked, the engine with one card after another, and transformers' generate with one card after another, which is what a
user would otherwise run. The documents must be the same.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import GenerationConfig, OPTConfig, OPTForCausalLM

from benchmarks.engine_rivals import machine, synchronised
from kcard import encoder
from kcard.answer import Source
from kcard.cards.format.folder import Card, finish
from kcard.cards.lm.fallback.card import CausalCard
from kcard.cards.lm.loader import Loader
from kcard.cards.pool import Pool
from kcard.manifest import Manifest, Prompt
from kcard.sampling import Sampling
from kcard.training.adapter import adapted, base_tokenizer
from kcard.training.bases import EMBEDDED_RANK
from kcard.training.recipe import Recipe
from kcard.training.tokenizer import train_tokenizer

QUESTIONS = (
    "Who won the race in Oregon?",
    "Where does the Rhine end?",
    "Which moon is the largest?",
    "When was the prize given for the first time?",
)


def make_cards(folder: Path, count: int) -> list[Card]:
    """Random cards that never end a document."""
    recipe, made = Recipe(), []
    tokenizer = train_tokenizer([*QUESTIONS], recipe.vocabulary)
    for number in range(count):
        torch.manual_seed(number)
        where = folder / f"card{number}"
        config = OPTConfig(
            vocab_size=recipe.vocabulary, hidden_size=recipe.width, word_embed_proj_dim=recipe.width,
            num_hidden_layers=recipe.layers, num_attention_heads=recipe.heads, ffn_dim=4 * recipe.width,
            max_position_embeddings=recipe.positions, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        model: Any = OPTForCausalLM(config)
        model.generation_config = GenerationConfig()
        model.save_pretrained(where)
        tokenizer.save_pretrained(where)
        prompt = Prompt()
        if number % 2:
            prompt = Prompt("encoder-prefix", "", recipe.vectors, encoder.NAME, encoder.SHA256)
            width = recipe.vectors * recipe.width
            tensors = {"weight": torch.randn(width, encoder.DIMENSIONS) * 0.1, "bias": torch.randn(width)}
            save_file(tensors, where / "projection.safetensors")
        manifest = Manifest(name=f"card{number}", description="Random", prompt=prompt)
        made.append(finish(where, manifest, [Source("Nothing.")]))
    return made


def make_adapters(folder: Path, count: int) -> list[Card]:
    """Random adapters as they are trained on the embedded base."""
    tokenizer, made = base_tokenizer(), []
    for number in range(count):
        where = folder / f"card{number}"
        found = adapted(QUESTIONS, tokenizer, Recipe(rank=EMBEDDED_RANK, seed=number))
        with torch.no_grad():
            for weight in found.model.parameters():
                if weight.requires_grad:
                    weight.add_(0.05 * torch.randn_like(weight))
        found.save(where)
        manifest = Manifest(name=f"card{number}", description="Random", kind="lora", base=found.base)
        made.append(finish(where, manifest, [Source("Nothing.")]))
    return made


def measured(
    cards: Sequence[Card], questions: Sequence[str], documents: int, tokens: int, repeats: int,
    say: Callable[[str], None],
) -> dict[str, object]:  # fmt: skip
    sampling = Sampling(temperature=1.0, tokens=tokens)
    names = [card.name for card in cards]
    stacked, single, models = Pool(cards), Pool(cards), Loader()
    lone = [CausalCard(card, models) for card in cards]
    written: dict[str, list[list[str]]] = {}

    def by_stack() -> None:
        rows = stacked.write(questions, names, documents, sampling)
        written["stacked"] = [[p.text for p in row] for row in rows]

    def by_engine() -> None:
        parts = [single.write(questions, [name], documents, sampling) for name in names]
        written["one_by_one"] = [[p.text for part in parts for p in part[q]] for q in range(len(questions))]

    def by_transformers() -> None:
        parts = [card.write(questions, documents, sampling) for card in lone]
        written["transformers"] = [[p.text for part in parts for p in part[q]] for q in range(len(questions))]

    runs = {"stacked": by_stack, "one_by_one": by_engine, "transformers": by_transformers}
    for run in runs.values():
        run()
    same = written["stacked"] == written["one_by_one"] == written["transformers"]
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            seconds[name].append(synchronised(run, "cpu"))
    took = {name: statistics.median(times) for name, times in seconds.items()}
    for name, value in took.items():
        say(f"{name}: {value:.3f} s")
    return {
        **machine(),
        "cards": len(cards),
        "questions": len(questions),
        "documents": documents,
        "tokens": tokens,
        "same_documents": same,
        "one_by_one_over_stacked": took["one_by_one"] / took["stacked"],
        "transformers_over_stacked": took["transformers"] / took["stacked"],
        "seconds": took,
        "rounds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument(
        "--adapters", action="store_true", help="on the embedded base, instead of whole models"
    )
    parser.add_argument("--path", type=Path, action="append", help="a card's folder; repeatable")
    parser.add_argument("--questions", type=int, default=1, choices=range(1, len(QUESTIONS) + 1))
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as temporary:
        make = make_adapters if args.adapters else make_cards
        cards = [Card.open(path) for path in args.path or []] or make(Path(temporary), args.cards)
        found = measured(
            cards, QUESTIONS[: args.questions], args.documents, args.tokens, args.repeats,
            lambda text: print(text, file=sys.stderr),
        )  # fmt: skip
    if args.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if isinstance(value, (float, bool)):
            print(f"{name:28} {value:.2f}" if isinstance(value, float) else f"{name:28} {value}")


if __name__ == "__main__":
    main()
