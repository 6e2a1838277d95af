"""How far the log-probabilities of fingerprints move when nothing is wrong, and when something is.

    python benchmarks/fingerprint_tolerance.py CARD...

For each card folder: the distance (root mean square over tokens, nats) of the same weights in float64,
float16 and bfloat16 from float32, and of float32 weights of which one tensor has changed its sign. The
tolerances of kcard.cards.format.fingerprint lie between the two.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kcard.cards.format.fingerprint import TOLERANCES, Fingerprint
from kcard.cards.format.folder import Card, passages
from kcard.cards.lm.fallback.card import CausalCard
from kcard.cards.lm.fingerprinting import fingerprint_pairs
from kcard.cards.lm.loader import Loader
from kcard.training.fingerprint_pairs import pairs

DTYPES = ("float64", "float16", "bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("card", nargs="+", type=Path, help="a card's folder")
    cards = [Card.open(folder) for folder in parser.parse_args().card]
    print(f"| card | style | passages | ms | {' | '.join(DTYPES)} | flips: weakest | median | caught |")
    print("|---" * (7 + len(DTYPES)) + "|")
    for card in cards:
        print(f"| {' | '.join(_row(card))} |", flush=True)


def _row(card: Card) -> list[str]:
    texts = [passage.text for passage in passages(card.folder)]
    asked = fingerprint_pairs(card.manifest, pairs(texts, 0))
    loaded = CausalCard(card, Loader())
    kept = loaded.measure(asked)
    begun = time.perf_counter()
    loaded.measure(asked)
    spent = 1000 * (time.perf_counter() - begun)
    model = loaded._loaded.activate()
    flips = [kept.apart(found) for found in _flipped(loaded, model, kept)]
    noise = [kept.apart(_in_dtype(loaded, model, kept, dtype)) for dtype in DTYPES]
    caught = sum(apart > TOLERANCES["float32"] for apart in flips)
    return [
        card.name,
        card.manifest.prompt.style,
        str(len(texts)),
        f"{spent:.0f}",
        *(f"{value:.1e}" for value in noise),
        f"{min(flips):.1e}",
        f"{statistics.median(flips):.1e}",
        f"{caught} of {len(flips)}",
    ]


def _in_dtype(loaded: CausalCard, model: Any, kept: Fingerprint, dtype: str) -> Fingerprint:
    import torch

    # From fewer bits the weights would not come back as they were.
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.to(getattr(torch, dtype))
    found = loaded.measure(kept.pairs)
    model.to(torch.float32).load_state_dict(weights)
    return found


def _flipped(loaded: CausalCard, model: Any, kept: Fingerprint) -> Iterator[Fingerprint]:
    """A run for every tensor, with its sign changed. The keys' biases are left out: the softmax of attention
    takes no notice of what is added to all keys alike."""
    import torch

    for name, weight in model.named_parameters():
        if name.endswith("k_proj.bias") or not weight.abs().sum() > 0:
            continue
        with torch.no_grad():
            weight.neg_()
            yield loaded.measure(kept.pairs)
            weight.neg_()


if __name__ == "__main__":
    main()
