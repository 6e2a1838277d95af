"""A fleet of workers with up to a million cards: latency, hits, loads and cost, and what breaks first.

    python -m benchmarks.scale_simulation --cards 100000 --rate 100 --policy bounded [--workers N] [--json]
    python -m benchmarks.scale_simulation --limits [--kind whole]
    python -m benchmarks.scale_simulation --questions 20000 --picture docs/pictures/scale.svg

Without --workers there are as many as answer the questions at 70 % of what they can do. --kind is the kind of card,
whose measured figures --set replaces: --set hour=1.006 --set memory=20. See docs/scale.md.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.scale.fleet import Fleet, Outcome, outcome
from benchmarks.scale.inputs import KINDS, Kind, Parts, changed
from benchmarks.scale.limits import Need, need
from benchmarks.scale.picture import draw
from benchmarks.scale.placement import POLICIES

CARDS = (1_000, 10_000, 100_000, 1_000_000)
RATES = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default="adapter")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="an input of the kind"
    )
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--cards", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=100.0, help="questions a second")
    parser.add_argument("--zipf", type=float, default=1.0, help="exponent of the cards' popularity")
    parser.add_argument("--policy", choices=[*POLICIES, "all"], default="all")
    parser.add_argument(
        "--continuous", action="store_true", help="continuous batching, as in vLLM and S-LoRA"
    )
    parser.add_argument("--questions", type=int, default=50_000, help="to simulate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limits", action="store_true", help="what breaks first, for many sizes")
    parser.add_argument("--picture", type=Path, help="draw hits and latency by policy, of two kinds")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        kind = changed(KINDS[args.kind], args.set)
        if args.limits:
            limits(kind, args.zipf, args.json)
        elif args.picture is not None:
            draw(args.questions, args.picture)
        else:
            fleets(kind, args)
    except ValueError as error:
        parser.error(str(error))


def fleets(kind: Kind, args: argparse.Namespace) -> None:
    policies = POLICIES if args.policy == "all" else (args.policy,)
    found = {
        policy: outcome(
            Fleet(kind, args.cards, args.rate, args.zipf, policy, args.continuous, args.workers, args.seed),
            Parts(),
            args.questions,
        )
        for policy in policies
    }
    if args.json:
        print(json.dumps({policy: one.to_json() for policy, one in found.items()}))
        return
    print(
        "| policy | workers | a second | p50 s | p95 s | p99 s | hits | loads a second: page cache, disk, hub | busy "
        "| USD a million | J |"
    )
    print("|---" * 11 + "|")
    for policy, one in found.items():
        print(f"| {policy} | {cells(one)} |")


def cells(one: Outcome) -> str:
    loads = ", ".join(f"{load:.3g}" for load in one.loads)
    seconds = f"{one.p50:.3g} | {one.p95:.3g} | {one.p99:.3g}"
    costs = f"{one.dollars:.3g} | {one.joules:.3g}"
    return f"{one.workers} | {one.throughput:.4g} | {seconds} | {one.hits:.3f} | {loads} | {one.busy:.2f} | {costs}"


def limits(kind: Kind, exponent: float, as_json: bool) -> None:
    """For each size the workers, and of the other parts the one that needs most machines."""
    found = {(cards, rate): need(kind, Parts(), cards, rate, exponent) for cards in CARDS for rate in RATES}
    if as_json:
        print(json.dumps([asdict(one) | {"first": one.first} for one in found.values()]))
        return
    print(f"| cards | {' | '.join(f'{rate:,.0f} a second' for rate in RATES)} |")
    print("|---" * (1 + len(RATES)) + "|")
    for cards in CARDS:
        row = [found[cards, rate] for rate in RATES]
        print(f"| {cards:,} | {' | '.join(map(cell, row))} |")


def cell(one: Need) -> str:
    machines = one.parts.get(one.first, 0.0)
    return f"{one.workers:,}" + (
        f", {one.first} {machines:,.{0 if machines >= 10 else 1}f}" if one.first else ""
    )


if __name__ == "__main__":
    main()
