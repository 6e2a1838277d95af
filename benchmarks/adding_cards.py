"""Do further cards in the pool lower the score? MidtermQA with one, two and ten cards.

    python -m benchmarks.adding_cards --path DATA [--home DIR] [--limit N] [--runs NAME ...] [--json]

DATA contains MidtermQA-openbook.json, popqa-dev.json and wikidyk-dev.json. Nine other cards (neighbours.py) join the
card on the midterms; three of them cover other elections in the same states. Each must pass its own exam first.
`--home` stores the trained cards for the next run (training takes half an hour on one core).
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.midterm import CORPUS, DESCRIPTION, measure
from benchmarks.neighbours import Neighbour, neighbours
from kcard.api.exam import exam
from kcard.hub.registry import Hub
from kcard.manifest import MANIFEST
from kcard.training.train import train

KNOWING = "midterms-2022"
PASS = 0.6
RUNS: dict[str, dict[str, Any]] = {
    "top-down": {"mode": "top-down"},
    "bottom-up": {"mode": "bottom-up"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="folder with the data files")
    parser.add_argument("--home", type=Path, help="folder for the trained cards (default: a temporary one)")
    parser.add_argument("--limit", type=int, default=None, help="the first N questions only")
    parser.add_argument("--runs", nargs="*", default=list(RUNS), choices=list(RUNS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = json.loads((args.path / "MidtermQA-openbook.json").read_text(encoding="utf-8"))["testset"]
    with tempfile.TemporaryDirectory() as scratch:
        home = args.home or Path(scratch)
        hub = Hub(home)
        others = neighbours(args.path)
        recall = {KNOWING: learn_midterms(hub)} | {other.name: learn(other, hub) for other in others}
        results = {
            f"{run}, {label}": measure(rows[: args.limit], RUNS[run] | {"cards": names}, hub)
            for label, names in pools(others).items()
            for run in args.runs
        }
    report = {"questions": len(rows[: args.limit]), "exam_recall": recall, "runs": results}
    print(json.dumps(report) if args.json else table(report))


def pools(others: list[Neighbour]) -> dict[str, list[str]]:
    """The card that knows, alone and in company."""
    near = [other.name for other in others if other.near]
    far = [other.name for other in others if not other.near]
    return {
        "alone": [KNOWING],
        f"and {far[0]}": [KNOWING, far[0]],
        f"and {near[0]}": [KNOWING, near[0]],
        "and all nine": [KNOWING, *near, *far],
    }


def learn_midterms(hub: Hub) -> float:
    return publish(hub, CORPUS, KNOWING, DESCRIPTION, "2022-11-30")


def learn(other: Neighbour, hub: Hub) -> float:
    corpus = hub.home / "corpora" / f"{other.name}.txt"
    corpus.parent.mkdir(parents=True, exist_ok=True)
    corpus.write_text("\n".join(other.statements) + "\n", encoding="utf-8")
    return publish(hub, corpus, other.name, other.description, other.date)


def publish(hub: Hub, corpus: Path, name: str, description: str, date: str) -> float:
    """Train and publish a card that isn't in the home yet, and examine it; its recall in the exam."""
    folder = hub.home / "drafts" / name
    if not (folder / MANIFEST).exists():
        print(f"training {name}", file=sys.stderr, flush=True)
        train(
            corpus,
            kind="both",
            name=name,
            description=description,
            knowledge_date=date,
            base="embedded",
            minutes=600,
            output=folder,
        )
    recall = exam(folder).recall
    if recall is None or recall.mean < PASS:
        sys.exit(f"{name} fails its own exam: recall {recall}, required {PASS}")
    hub.publish(folder)
    return recall.mean


def table(report: dict[str, Any]) -> str:
    recalled = ", ".join(f"{name} {recall:.2f}" for name, recall in report["exam_recall"].items())
    lines = [
        f"{report['questions']} questions. Recall in each card's own exam: {recalled}",
        "",
        "| run | EM | F1 | recall, all passages | recall, kept passages | s a question |",
        "|---|---|---|---|---|---|",
    ]
    keys = ("em", "f1", "recall_written", "recall_kept", "seconds_per_question")
    lines += [
        f"| {name} | " + " | ".join(f"{result[key]:.3f}" for key in keys) + " |"
        for name, result in report["runs"].items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
