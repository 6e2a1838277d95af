"""Does a document depend on who shares its batch? How many stay the same, by dtype and by what changed.

    python -m benchmarks.engine_batches [--cards 8] [--documents 3] [--tokens 64] [--shape 125m] [--json]

Noise belongs to a document, so only the rounding of products can differ with the shape of a batch. Random base and
adapters, prompts of 12 to 40 tokens, temperature 1, top 50: with random weights no token is certain, so this is the
worst case. Each document of the whole batch is compared with the same one written otherwise.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

import torch

from benchmarks.engine_rivals import SHAPES, TOP_K, make_adapters, make_base
from kcard.cards.lm import weights
from kcard.cards.lm.engine import families, lora, whole
from kcard.cards.lm.engine.batch import Prompts, batched
from kcard.cards.lm.engine.decoder import Decoder
from kcard.cards.lm.engine.loop import decode
from kcard.cards.lm.engine.packed import packed
from kcard.cards.lm.engine.sampler import Sampler

LENGTHS = (32, 12, 40)


def write(
    decoder: Decoder, cards: list[int], questions: list[int], documents: list[int], tokens: int
) -> dict[tuple[int, int, int], list[int]]:
    """By card, question and document. `decoder`: of these cards."""
    prompts = {q: tuple(range(10 + q, 10 + q + LENGTHS[q])) for q in questions}
    keys = [(c, q, d) for c in cards for q in questions for d in documents]
    seeds = torch.tensor([1000 * c + 10 * q + d for c, q, d in keys])
    asked = batched(decoder, Prompts(ids=tuple(prompts[q] for _ in cards for q in questions)), len(documents))
    found = decode(decoder, asked, Sampler(seeds, 1.0, TOP_K), tokens, ())
    return dict(zip(keys, found.tolist(), strict=True))


def shares(
    folder: Path, shape: str, cards: int, documents: int, tokens: int, dtype: torch.dtype
) -> dict[str, float]:
    base = make_base(folder / "base", shape, dtype)
    decoder = families.decoder(weights.of_model(base))
    folders = make_adapters(folder / "base", folder, cards)
    stacked = lora.stacked(packed(decoder), [lora.read(where, dtype) for where in folders])
    every, asked, numbers = [*range(cards)], [*range(len(LENGTHS))], [*range(documents)]
    expected = write(stacked, every, asked, numbers, tokens)
    alone = [whole.part(stacked, c, c + 1, cards) for c in every]
    others = {
        "the same again": write(stacked, every, asked, numbers, tokens),
        "each card alone": {
            k: v for c in every for k, v in write(alone[c], [c], asked, numbers, tokens).items()
        },
        "each question alone": {
            k: v for q in asked for k, v in write(stacked, every, [q], numbers, tokens).items()
        },
        "one document each": write(stacked, every, asked, numbers[:1], tokens),
        "a document all alone": write(alone[0], [0], asked[:1], numbers[:1], tokens),
    }
    return {
        name: sum(expected[key] == ids for key, ids in found.items()) / len(found)
        for name, found in others.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--shape", choices=SHAPES, default="125m")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        with tempfile.TemporaryDirectory() as temporary:
            found[str(dtype).removeprefix("torch.")] = shares(
                Path(temporary), args.shape, args.cards, args.documents, args.tokens, dtype
            )
    if args.json:
        print(json.dumps(found, indent=2))
        return
    for name, by_change in found.items():
        for change, share in by_change.items():
            print(f"{name:10} {change:22} {share:.3f} of the documents are the same")


if __name__ == "__main__":
    main()
