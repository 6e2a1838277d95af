"""Fit the reader's relevance again, on frozen states of texts of which half answer.

Most questions of the sets have an answer, so that training alone takes too many texts for one that answers. Only the
two layers of relevance (`pooled` and `pair`) learn here; spans and evidence stay.
"""

import random
from collections import defaultdict
from collections.abc import Sequence

from kcard.embedded.reader import encode
from recipes.reader.example import Reading
from recipes.reader.network import TrainedNetwork

MOST = 1200  # texts of one kind that answer, and as many that do not
EPOCHS, RATE, ROWS = 10, 3e-4, 64


def balanced(readings: Sequence[Reading], seed: int, most: int = MOST) -> list[Reading]:
    """Draw from each kind of example (invented, claims, manuals and the rest) as many that answer as do not."""
    rng = random.Random(seed)
    kinds: dict[str, tuple[list[Reading], list[Reading]]] = defaultdict(lambda: ([], []))
    for reading in readings:
        kinds[_kind(reading)][reading.answered].append(reading)
    drawn: list[Reading] = []
    for without, answering in kinds.values():
        count = min(most, len(without), len(answering))
        drawn += rng.sample(without, count) + rng.sample(answering, count)
    rng.shuffle(drawn)
    return drawn


def _kind(reading: Reading) -> str:
    if reading.group in ("", "VitaminC"):
        return reading.group
    # A manual's group is its name, a set's or an article's has several words or a capital.
    return "manual" if reading.group.islower() and " " not in reading.group else "text"


def refit(network: TrainedNetwork, readings: Sequence[Reading], seed: int) -> None:
    """Train `pooled` and `pair` on the states of these texts."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits as entropy

    network.model.eval()
    with torch.inference_mode():
        pairs = [encode([(r.question, f"{r.section}: {r.text}" if r.section else r.text)]) for r in readings]
        features = torch.cat([network.features(pair) for pair in pairs])
    features, answered = features.clone(), torch.tensor([float(r.answered) for r in readings])
    layers = [value for name, value in network.heads.items() if not name.startswith("tokens")]
    optimiser = torch.optim.AdamW(layers, lr=RATE, weight_decay=0.01)
    generator = torch.Generator().manual_seed(seed)
    steps = EPOCHS * -(-len(readings) // ROWS)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(readings), generator=generator).split(ROWS):
            value = entropy(network.relevance(features[rows]), answered[rows])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            schedule.step()
