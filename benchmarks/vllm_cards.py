"""Seconds a document: kcard's own engine and a vLLM server that writes for the same cards.

    python -m benchmarks.vllm_cards --vllm PYTHON [--shape 125m] [--cards 8] [--places 4] [--questions 4]
        [--documents 3] [--tokens 64] [--dtype float32] [--device cpu] [--json]

PYTHON has vLLM; it is started on this machine, with the GPU if there is one. Base and adapters are random, prompts are
short, and every document has `tokens` tokens at temperature 1 in the top 50.

    own        all cards in one batch of kcard's engine
    places     all cards through the places: adapters are loaded, checked and dropped
    loaded     as many cards as there are places, whose adapters are loaded and were checked within a minute
    own_few    the same cards by kcard's engine
    question   one card, one question, one document on the server; own_question, by kcard's engine

A first round of each warms both.
"""

import argparse
import json
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tests.cards.vllm_process import VLLMProcess
from tests.tiny_tokenizers import of_bytes

from benchmarks.engine_rivals import SHAPES, make_adapters, make_base
from kcard.cards.format.folder import Card, finish
from kcard.cards.lm import fingerprinting
from kcard.cards.lm.loader import Loader, base_digest
from kcard.cards.lm.vllm.engines import Engines
from kcard.cards.pool import Pool
from kcard.manifest import Base, Manifest
from kcard.sampling import Sampling

TEXTS = ["The old bridge was built of grey stone.", "Of the nine ships, four came back in spring."]


def make_cards(folder: Path, shape: str, count: int, dtype: torch.dtype) -> list[Card]:
    base = folder / "base"
    make_base(base, shape, dtype)
    of_bytes(TEXTS).save_pretrained(base)
    made_from = Base(str(base), sha256=base_digest(str(base)))
    cards = []
    for adapter in make_adapters(base, folder / "cards", count):
        manifest = Manifest(adapter.name, "Random", kind="lora", base=made_from)
        of_bytes(TEXTS).save_pretrained(adapter)
        fingerprinting.write(adapter, manifest, [("What came back?", text) for text in TEXTS])
        cards.append(finish(adapter, manifest, []))
    return cards


class Work:
    """What each pool writes, and how long it takes."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._documents = given.documents
        self._sampling = Sampling(temperature=1.0, tokens=given.tokens, seed=1)
        self._questions = [f"What is known of place number {n}?" for n in range(given.questions)]

    def seconds(
        self, pool: Pool, cards: list[Card], questions: int | None = None, documents: int = 0
    ) -> float:
        """Of one document, in a second round."""
        asked, each = self._questions[:questions], documents or self._documents
        names = [card.name for card in cards]
        for _ in range(2):
            started = time.perf_counter()
            pool.write(asked, names, each, self._sampling)
        return (time.perf_counter() - started) / (len(asked) * len(names) * each)


def measure(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    dtype = getattr(torch, given.dtype)
    cards, work = make_cards(folder, given.shape, given.cards, dtype), Work(given)
    few, one = cards[: given.places], cards[:1]
    own = Pool(cards, given.device)
    found: dict[str, Any] = {
        "own": work.seconds(own, cards),
        "own_few": work.seconds(own, few),
        "own_question": work.seconds(own, one, 1, 1),
    }
    process = VLLMProcess(given.vllm, folder / "vllm.log")
    lora = ["--enable-lora", "--max-lora-rank", "8", "--max-loras", str(given.places)]
    try:
        started = time.perf_counter()
        process.start(folder / "base", *lora, dtype=given.dtype)
        found["start"] = time.perf_counter() - started
        served = Pool(cards, loader=Loader(engines=Engines([f"vllm={process.url}"], given.places)))
        found |= {
            "places": work.seconds(served, cards),
            "loaded": work.seconds(served, few),
            "question": work.seconds(served, one, 1, 1),
        }
    finally:
        process.kill()
    return {key: round(value, 4) for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vllm", required=True, help="a Python that has vLLM")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="125m")
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--places", type=int, default=4)
    parser.add_argument("--questions", type=int, default=4)
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(given, Path(folder))
    if given.json:
        print(json.dumps(vars(given) | found))
        return
    for name, seconds in found.items():
        print(f"{name:14} {seconds:8.3f} s")


if __name__ == "__main__":
    main()
