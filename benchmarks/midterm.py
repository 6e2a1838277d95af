"""MidtermQA open-book in every mode, with a card trained on statements that are worded differently from the questions.

    python benchmarks/midterm.py --path MidtermQA-openbook.json [--limit N] [--json]

The file contains the questions and answers of Feng et al. (Knowledge Card). The card is trained on
demo/corpora/midterms-2022 unless --card names one.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kcard.cards.card import Card
from kcard.evaluation.metrics import exact_match, f1, substring
from kcard.hub.registry import Hub
from kcard.integrators.pipeline import Pipeline
from kcard.training.train import train
from kcard.types import Answer

CORPUS = Path(__file__).resolve().parents[1] / "demo" / "corpora" / "midterms-2022"
DESCRIPTION = "winners of the 2022 U.S. midterm elections: House, Senate and governors"
RUNS: dict[str, dict[str, Any]] = {
    "no cards": {"mode": "direct"},
    "top-down": {"mode": "top-down"},
    "top-down, no evidence": {"mode": "top-down", "evidence": ["none"]},
    "bottom-up": {"mode": "bottom-up"},
    "bottom-up, no evidence": {"mode": "bottom-up", "evidence": ["none"]},
}
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="MidtermQA-openbook.json")
    parser.add_argument("--card", type=Path, help="a trained card folder instead of a new one")
    parser.add_argument("--limit", type=int, default=None, help="the first N questions only")
    parser.add_argument("--runs", nargs="*", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--card-temperature", type=float, default=None, help="instead of the default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = json.loads(args.path.read_text(encoding="utf-8"))["testset"][: args.limit]
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        card = Card.open(args.card) if args.card else learn(home, args.seed)
        hub = Hub(home)
        chosen: dict[str, Any] = {"seed": args.seed}
        if args.card_temperature is not None:
            chosen["card_temperature"] = args.card_temperature
        hub.publish(card.folder)
        results = {name: measure(rows, RUNS[name] | chosen, hub) for name in args.runs}
    report = {"questions": len(rows), "training_seconds": card.manifest.training.seconds, "runs": results}
    print(json.dumps(report) if args.json else table(report))


def learn(home: Path, seed: int) -> Card:
    print("training the card", file=sys.stderr)
    return train(
        CORPUS,
        name="midterms-2022",
        description=DESCRIPTION,
        kind="both",
        base="embedded",
        minutes=600,
        output=home / "draft",
        seed=seed,
    )


def measure(rows: list[dict[str, Any]], options: dict[str, Any], hub: Hub) -> dict[str, float]:
    """Exact match, F1, share of questions that called no card, recall of what the cards wrote and of what was kept."""
    pipeline, started = Pipeline(hub=hub, **options), time.perf_counter()
    answers: list[Answer] = []
    for start in range(0, len(rows), BATCH):
        answers += pipeline([row["question"] for row in rows[start : start + BATCH]])
    seconds = time.perf_counter() - started
    golds = [row["answer"] for row in rows]
    n = len(rows)
    pairs = list(zip(answers, golds, strict=True))
    return {
        "em": sum(exact_match(a.answer, [g]) for a, g in pairs) / n,
        "f1": sum(f1(a.answer, [g]) for a, g in pairs) / n,
        "no_card": sum(not a.gate.fired for a in answers) / n,
        "recall_written": sum(any(substring(p.text, [g]) for p in a.passages) for a, g in pairs) / n,
        "recall_kept": sum(any(substring(p.knowledge, [g]) for p in a.passages if p.kept) for a, g in pairs)
        / n,
        "seconds_per_question": seconds / n,
    }


def table(report: dict[str, Any]) -> str:
    keys = ("em", "f1", "no_card", "recall_written", "recall_kept", "seconds_per_question")
    lines = [
        f"{report['questions']} questions; the card was trained in {report['training_seconds']:.0f} s",
        "",
        "| run | EM | F1 | no card called | recall, all passages | recall, kept passages | s a question |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | " + " | ".join(f"{result[key]:.3f}" for key in keys) + " |"
        for name, result in report["runs"].items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
