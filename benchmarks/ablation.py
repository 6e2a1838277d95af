"""What is each selector good for? MidtermQA, bottom-up, one selector left out at a time (Knowledge Card, figure 3).

    python -m benchmarks.ablation --path DATA --home DIR [--limit N] [--card-temperature T] [--evidence ...]
        [--min-factuality F] [--cards ...] [--plot FILE.svg] [--json]

DATA holds MidtermQA-openbook.json, popqa-dev.json and wikidyk-dev.json. The card that knows stands among the nine
others of adding_cards.py, which are trained and published where --home has them not (half an hour of one core).
Leaving a selector out: relevance gives way to chance, pruning to the whole document, factuality to an equal chance for
all that relevance kept; "by relevance": to the nearest of them. Against its own text every honest card is true; what
factuality is good for shows with a card in the pool that is not, and --evidence that is.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from benchmarks.adding_cards import KNOWING, learn, learn_midterms
from benchmarks.midterm import measure
from benchmarks.neighbours import neighbours
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
    parser.add_argument("--home", type=Path, required=True, help="where the trained cards are kept")
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


def interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def table(report: dict[str, Any]) -> str:
    lines = [
        f"{report['questions']} questions, {len(report['cards'])} cards, at temperature {report['card_temperature']}",
        "",
        "| selectors | " + " | ".join(COLUMNS.values()) + " | EM, 95 % |",
        "|---|" + "---|" * (len(COLUMNS) + 1),
    ]
    for name, result in report["variants"].items():
        low, high = interval(result["em"], report["questions"])
        cells = " | ".join(f"{result[key]:.3f}" for key in COLUMNS)
        lines.append(f"| {name} | {cells} | {low:.2f} to {high:.2f} |")
    return "\n".join(lines)


def plot(report: dict[str, Any]) -> str:
    """Exact match of each variant as a bar with its interval, as SVG."""
    row, left, wide = 34, 230, 420
    height = row * len(report["variants"]) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 70} {height}" '
        'font-family="sans-serif" font-size="13" fill="#222">',
        f'<text x="{left}" y="18">exact match, MidtermQA, {report["questions"]} questions, '
        f"{len(report['cards'])} cards</text>",
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + wide * tick
        parts.append(f'<line x1="{x}" y1="28" x2="{x}" y2="{height - 26}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{height - 8}" text-anchor="middle">{tick:g}</text>')
    for i, (name, result) in enumerate(report["variants"].items()):
        y, em = 34 + i * row, result["em"]
        low, high = (left + wide * x for x in interval(em, report["questions"]))
        middle = y + row / 2 - 4
        parts += [
            f'<text x="{left - 8}" y="{middle + 4}" text-anchor="end">{name}</text>',
            f'<rect x="{left}" y="{y}" width="{wide * em:.1f}" height="{row - 8}" fill="#4c78a8"/>',
            f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="#222" stroke-width="1.5"/>',
            f'<text x="{left + wide + 8}" y="{middle + 4}">{em:.3f}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
