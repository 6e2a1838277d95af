"""Ablation of the selectors: MidtermQA, bottom-up, without one selector at a time (Knowledge Card, figure 3).

    python -m benchmarks.ablation --path DATA --home DIR [--limit N] [--card-temperature T] [--evidence ...]
        [--min-factuality F] [--cards ...] [--plot FILE.svg] [--json]

DATA contains MidtermQA-openbook.json, popqa-dev.json and wikidyk-dev.json. The pool is the card on the midterms and the
nine others of adding_cards.py, which are trained and published unless --home has them (half an hour on one core).
Without a selector, relevance is random, documents are not pruned, or factuality keeps a random sample of what relevance
kept ("by relevance": the nearest of them). Every honest card is faithful to its own text, so factuality only matters
with a dishonest card in the pool and independent --evidence.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.adding_cards import KNOWING, learn, learn_midterms
from benchmarks.midterm import measure
from benchmarks.neighbours import neighbours
from kcard.evaluation.metrics import interval
from kcard.evaluation.plots import Intervals, PlotPoint, draw_chart, encode_figure
from kcard.evaluation.records import Mean
from kcard.hub.registry import Hub

VARIANTS: dict[str, dict[str, Any]] = {
    "all three": {},
    "without relevance": {"relevance": "random"},
    "without pruning": {"pruner": "none"},
    "without factuality": {"checker": "none"},
    "without factuality, by relevance": {"evidence": ["none"]},
    "none (by chance)": {"relevance": "random", "pruner": "none", "checker": "none"},
}
COLUMNS = {
    "em": "EM",
    "f1": "F1",
    "recall_written": "recall, all passages",
    "recall_kept": "recall, kept passages",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="folder with the data files")
    parser.add_argument("--home", type=Path, required=True, help="folder for the trained cards")
    parser.add_argument("--limit", type=int, default=None, help="the first N questions only")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--cards", nargs="*", help="published cards of the home, instead of those ten")
    parser.add_argument("--evidence", nargs="*", default=["own"], help="what passages are checked against")
    parser.add_argument("--min-factuality", type=float, default=0.0, help="see kcard ask")
    parser.add_argument("--card-temperature", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="where the plot goes (SVG)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = json.loads((args.path / "MidtermQA-openbook.json").read_text(encoding="utf-8"))["testset"]
    rows = rows[: args.limit]
    hub = Hub(args.home)
    cards = args.cards or pool(hub, args.path)
    common = {
        "mode": "bottom-up",
        "gate": "always",
        "cards": cards,
        "evidence": args.evidence,
        "min_factuality": args.min_factuality,
        "card_temperature": args.card_temperature,
        "seed": args.seed,
    }
    report = {
        "questions": len(rows),
        "cards": cards,
        "card_temperature": args.card_temperature,
        "variants": {name: measure(rows, common | VARIANTS[name], hub) for name in args.variants},
    }
    if args.plot:
        args.plot.write_text(plot(report), encoding="utf-8")
    print(json.dumps(report) if args.json else table(report))


def pool(hub: Hub, data: Path) -> list[str]:
    """The names of the ten cards, which are in the hub afterwards."""
    others = neighbours(data)
    learn_midterms(hub)
    for other in others:
        learn(other, hub)
    return [KNOWING, *(other.name for other in others)]


def table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['questions']} questions, {len(report['cards'])} cards, at temperature {report['card_temperature']}",
        "",
        "| selectors | " + " | ".join(COLUMNS.values()) + " | EM, 95 % |",
        "|---|" + "---|" * (len(COLUMNS) + 1),
    ]
    for name, result in report["variants"].items():
        low, high = wilson(result["em"], report["questions"])
        cells = " | ".join(f"{result[key]:.3f}" for key in COLUMNS)
        lines.append(f"| {name} | {cells} | {low:.2f} to {high:.2f} |")
    return "\n".join(lines)


def plot(report: dict[str, Any]) -> str:
    """Exact match of each variant with its interval, as SVG."""
    n = report["questions"]
    points = [
        PlotPoint(name, Mean(result["em"], *wilson(result["em"], n)))
        for name, result in report["variants"].items()
    ]
    label = f"exact match, MidtermQA, {n} questions, {len(report['cards'])} cards"
    chart = Intervals(label, tuple(points), points[0].mean.mean)
    return encode_figure(draw_chart(chart), "svg").decode()


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    right = round(share * count)
    return interval([1.0] * right + [0.0] * (count - right))


if __name__ == "__main__":
    main()
