"""Measure the embedded reader: python -m recipes.reader.evaluate --path DATA [--weights FOLDER] [--limit N]

DATA holds MidtermQA-openbook.json, popqa-dev.json and wikidyk-dev.json. Each question is read with its statement
and two hard distractors (of the same state or relation), and with the distractors alone. Prints a table.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from kcard.llms import reader, span_network
from recipes.reader.score import figures
from recipes.reader.statements import Item, midterm, popqa, wikidyk
from recipes.reader.synth import Example

__all__ = ["examples"]

DISTRACTORS = 2


def examples(items: Sequence[Item], seed: int, gold: bool) -> list[Example]:
    """One example an item, its distractors from the same group where that has enough."""
    rng = random.Random(seed)
    found = []
    for item in items:
        others = [o for o in items if o.question != item.question and o.answer.lower() != item.answer.lower()]
        near = [o for o in others if o.group == item.group]
        wrong = rng.sample(near, min(len(near), DISTRACTORS))
        wrong += rng.sample(others, DISTRACTORS - len(wrong))
        passages = [rng.choice(o.statements) for o in wrong]
        spans: tuple[tuple[int, int, int], ...] = ()
        if gold:
            place = rng.randint(0, len(passages))
            passages.insert(place, rng.choice(item.statements))
            start = passages[place].lower().index(item.answer.lower())
            spans = ((place, start, start + len(item.answer)),)
        found.append(Example(item.question, tuple(passages), spans, item.answer))
    return found


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=reader.WEIGHTS)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--threshold", type=float, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network = span_network.load(options.weights)
    if options.threshold is not None:
        network = span_network.Network(network.model, network.head, options.threshold)
    print(
        "| set | questions | exact match | wrongly no answer | no answer when the statement is missing | ms |"
    )
    print("|---|---|---|---|---|---|")
    for name, source in (("MidtermQA", midterm), ("PopQA", popqa), ("WikiDYK", wikidyk)):
        items = source(options.path)[: options.limit]
        there = figures(network, examples(items, seed=7, gold=True))
        missing = figures(network, examples(items, seed=7, gold=False))
        print(
            f"| {name} | {there.count} | {there.exact:.3f} | {there.said_nothing:.3f} "
            f"| {missing.said_nothing:.3f} | {there.milliseconds:.1f} |"
        )


if __name__ == "__main__":
    main()
