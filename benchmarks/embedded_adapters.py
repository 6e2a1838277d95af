"""Embedded cards of MidtermQA: a whole model from scratch against a LoRA adapter on the base in the package.

    python -m benchmarks.embedded_adapters --path MidtermQA-openbook.json [--seeds 0 1 2] [--json]

The file (questions and answers of Feng et al., Knowledge Card) is read, never copied. Both cards learn
demo/corpora/midterms-2022, which tells the same facts in other words. One core each; `seconds` is the time of training
alone, `weights` what a further card adds to a hub.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from benchmarks.recall import Question, measured, rows
from kcard.cards.format.folder import Card
from kcard.training.train import train

CORPUS = Path(__file__).resolve().parents[1] / "demo" / "corpora" / "midterms-2022"
WEIGHTS = {"full": "model.safetensors", "lora": "adapter_model.safetensors"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="MidtermQA-openbook.json")
    parser.add_argument("--methods", nargs="*", default=list(WEIGHTS), choices=list(WEIGHTS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--card", type=Path, help="a trained card folder instead of new ones")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    asked = json.loads(args.path.read_text(encoding="utf-8"))["testset"]
    questions = [Question(row["question"], (row["answer"],)) for row in asked]
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        if args.card:
            found.append(row(Card.open(args.card), questions))
        else:
            for seed in args.seeds:
                found += [row(learnt(Path(scratch), method, seed), questions) for method in args.methods]
    columns = ["method", "seed", "steps", "seconds", "weights MB", "greedy", "any of 3", "whole", "EM"]
    print(json.dumps(found) if args.json else rows(columns, found))


def learnt(scratch: Path, method: Literal["full", "lora"], seed: int) -> Card:
    print(f"training: {method}, seed {seed}", file=sys.stderr)
    return train(
        CORPUS,
        name="midterms-2022",
        description="winners of the 2022 U.S. midterm elections",
        kind="both",
        base="embedded",
        method=method,
        minutes=600,
        output=scratch / f"{method}-{seed}",
        seed=seed,
    )


def row(card: Card, questions: list[Question]) -> dict[str, Any]:
    made = card.manifest
    size = (card.folder / WEIGHTS[made.kind]).stat().st_size
    return {
        "method": made.kind,
        "seed": made.training.seed,
        "steps": made.training.hyperparameters["steps"],
        "seconds": made.training.seconds,
        "weights MB": round(size / 1e6, 2),
        **measured(card, questions),
    }


if __name__ == "__main__":
    main()
