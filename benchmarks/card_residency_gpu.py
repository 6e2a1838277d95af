"""Large cards that take turns on a GPU: seconds of a batch with and without reading ahead and the host's memory.

    python -m benchmarks.card_residency_gpu [--cards 26] [--room 8] [--host 16] [--shape 1.3b] [--device cuda] [--json]

This has not been run on a GPU, since none was available: it was tried on a CPU only, with `--device cpu --shape tiny`
and `--shape 125m`: there the host's memory is another part of the same memory, and nothing is pinned.

The cards are whole OPT models with random weights. Each takes 2.6 GB of disk in shape 1.3b (`--folder`: where). There
is memory for `--room` cards on the device and for `--host` cards in the host's. Each batch asks every card all of the
questions; the first loads all cards by transformers and is not counted. The next `--batches` are written in four ways:

    files           each card that is not on the device is read from its files when its turn comes
    files, ahead    ... while the card before it writes
    host            ... or copied from the host's memory, if it is there
    host, ahead     both, as kcard does

waiting is the time in which no card writes because the next one is not there. The documents must be the same.
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from tests.cards.engine.cards import tokenizer
from transformers import GenerationConfig, OPTConfig, OPTForCausalLM

from benchmarks.engine_rivals import SHAPES, machine, synchronised
from kcard.cards.format.folder import Card, finish
from kcard.cards.lm import rereading, weights
from kcard.cards.lm.ahead import Ahead
from kcard.cards.lm.host import HostMemory
from kcard.cards.lm.loader import Loader
from kcard.cards.lm.stacked import StackedCard
from kcard.cards.pool import Pool
from kcard.manifest import Manifest
from kcard.sampling import Sampling

WAYS = (("files", 0, False), ("files, ahead", 0, True), ("host", 1, False), ("host, ahead", 1, True))


@dataclass
class Batches:
    """Of one way: seconds of each batch, seconds of waiting in all, cards read from files and copied from the host."""

    seconds: list[float] = field(default_factory=list)
    waiting: float = 0.0
    files: int = 0
    copies: int = 0


def make_cards(folder: Path, count: int, shape: str) -> list[Card]:
    """Random models that never end a document, in bf16 files; those that are there already are taken as they are."""
    width, inner, layers, heads = SHAPES[shape]
    made = []
    for number in range(count):
        where = folder / f"card{number}"
        if (where / "kcard.json").is_file():
            made.append(Card.open(where))
            continue
        torch.manual_seed(number)
        config = OPTConfig(
            vocab_size=50272, hidden_size=width, word_embed_proj_dim=width, ffn_dim=inner, num_hidden_layers=layers,
            num_attention_heads=heads, max_position_embeddings=2048, dtype=torch.bfloat16,
        )  # fmt: skip
        model: Any = OPTForCausalLM(config).to(torch.bfloat16)  # type: ignore[arg-type]
        model.generation_config = GenerationConfig()
        model.save_pretrained(where)
        tokenizer().save_pretrained(where)
        made.append(finish(where, Manifest(name=where.name, description="Random"), []))
        print(f"card {number + 1} of {count} is made", file=sys.stderr)
    return made


@contextmanager
def counted(ahead: bool) -> Iterator[Batches]:
    """What happens while the block lasts; unless `ahead`, nothing is read while a card writes."""
    found = Batches()
    read, returned, bring = rereading.read, HostMemory.returned, StackedCard.bring

    def reading(source: Any) -> Any:
        found.files += 1
        return read(source)

    def copied(memory: HostMemory, key: Any) -> None:
        found.copies += memory.peek(key) is not None
        returned(memory, key)

    def waiting(card: StackedCard) -> None:
        started = time.perf_counter()
        bring(card)
        found.waiting += time.perf_counter() - started

    patches: list[Any] = [
        mock.patch.object(rereading, "read", reading),
        mock.patch.object(HostMemory, "returned", copied),
        mock.patch.object(StackedCard, "bring", waiting),
    ]
    if not ahead:
        patches.append(mock.patch.object(Ahead, "start", return_value=False))
    for patch in patches:
        patch.start()
    try:
        yield found
    finally:
        for patch in patches:
            patch.stop()


def measured(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    cards = make_cards(folder, args.cards, args.shape)
    each = weights.size(cards[0].folder, args.device)
    sampling, names = Sampling(temperature=1.0, tokens=args.tokens), [card.name for card in cards]
    questions = [f"What is number {number}?" for number in range(args.questions)]
    ways, documents = dict[str, Any](), list[Any]()
    for name, host, ahead in WAYS:
        # Pinned memory is counted in powers of two, so that a card may take more of it.
        models = Loader(
            args.device, memory=args.room * each + each // 10, host_memory=host * args.host * each * 5 // 4
        )
        pool, texts = Pool(cards, loader=models), list[Any]()

        def write(pool: Pool = pool, texts: list[Any] = texts) -> None:
            found = pool.write(questions, names, args.documents, sampling)
            texts.append([[passage.text for passage in row] for row in found])

        write()
        with counted(ahead) as found:
            for _ in range(args.batches):
                found.seconds.append(synchronised(write, args.device))
        documents += texts
        ways[name] = asdict(found) | {"median": statistics.median(found.seconds)}
        print(f"{name}: {ways[name]['median']:.2f} s a batch, {found.waiting:.2f} s waiting", file=sys.stderr)
        del pool, models
    if any(texts != documents[0] for texts in documents):
        sys.exit("documents differ between the ways")
    return {**machine(args.device), "gigabytes_a_card": each / 1e9, "arguments": vars(args), "ways": ways}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cards", type=int, default=26)
    parser.add_argument("--room", type=int, default=8, help="cards that the device's memory holds")
    parser.add_argument("--host", type=int, default=16, help="cards that the host's memory holds beside them")
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--shape", choices=SHAPES, default="1.3b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--folder", help="where the cards are kept for another time; default: a temporary one"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.device != "cpu" and not torch.cuda.is_available():
        sys.exit("no GPU is at hand: --device cpu tries the script")
    logging.getLogger("kcard").setLevel(logging.ERROR)  # cards without fingerprints
    with tempfile.TemporaryDirectory() as temporary:
        found = measured(args, Path(args.folder or temporary))
    if args.json:
        print(json.dumps(found))
        return
    print(
        "| | seconds a batch | of these waiting | cards read from files | copied from the host |\n|---|---|---|---|---|"
    )
    for name, way in found["ways"].items():
        batches = len(way["seconds"])
        print(
            f"| {name} | {way['median']:.2f} | {way['waiting'] / batches:.2f} | {way['files'] / batches:.1f} "
            f"| {way['copies'] / batches:.1f} |"
        )


if __name__ == "__main__":
    main()
