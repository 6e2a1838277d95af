"""WikiDYK: free-form facts, one statement each. Recall, exact match, and estimated against actual training time.

    python -m benchmarks.wikidyk --path wikidyk-dev.json [--facts 300 1000] [--json]

A card is trained on the first N facts and answers their questions. Recall: the gold answer is in a document. EM: of the
embedded reader's answer from the document at temperature 0. The estimate is the one that training reports before its
first step; both are wall times, so use an idle machine.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import kcard
from benchmarks.prompt_styles import stated
from benchmarks.recall import Question, measured, rows
from kcard.cards.card import Card

COLUMNS = ("facts", "style", "steps", "estimated", "taken", "greedy", "any of 3", "whole", "EM", "answerable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="wikidyk-dev.json")
    parser.add_argument("--facts", type=int, nargs="*", default=[300, 1000])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    facts = json.loads(args.path.read_text(encoding="utf-8"))["rows"]
    figures = []
    for count in args.facts:
        print(f"training on {count} facts", file=sys.stderr)
        figures.append(measure(facts[:count], args.seed))
    print(json.dumps(figures) if args.json else rows(COLUMNS, figures))


def measure(facts: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    questions = [Question(row["input"], (row["output"],)) for row in facts]
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "facts.txt"
        corpus.write_text("".join(f"{stated(row['fact'])}\n" for row in facts), encoding="utf-8")
        begun = time.monotonic()
        card = kcard.train(
            corpus,
            kind="both",
            base="embedded",
            minutes=600,
            description="facts",
            output=Path(scratch) / "card",
            seed=seed,
            exam=False,
        )
        taken = time.monotonic() - begun
        return {"facts": len(facts)} | times(card, taken) | measured(card, questions)


def times(card: Card, taken: float) -> dict[str, Any]:
    """Style, steps, and seconds that training expected and took."""
    hyperparameters = card.manifest.training.hyperparameters
    return {
        "style": hyperparameters["style"],
        "steps": hyperparameters["steps"],
        "estimated": hyperparameters.get("estimated_seconds"),
        "taken": round(taken, 1),
    }


if __name__ == "__main__":
    main()
