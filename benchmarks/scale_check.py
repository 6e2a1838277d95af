"""Does the simulation of a fleet predict what two real workers do?

    python -m benchmarks.scale_check [--rounds 5] [--questions 800] [--cards 40] [--capacity 10] [--json]

Two processes, each on a core of its own, load whole cards with random weights and write with them. A worker's memory
holds --capacity of the --cards, and the cards are placed on workers by the simulation's own code. Each round

    calibrates   one worker alone: seconds of a batch and of a load; then both, one client each: interference
    predicts     an open loop at two thirds of what they can do, and a closed loop, with other seeds
    measures     both with the real workers

and the figures are medians over the rounds, without the first fifth of each run, in which the caches fill. Takes
five minutes on two idle cores.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.calibration import Calibration, fitted
from benchmarks.scale.equilibrium import filled
from benchmarks.scale.placement import placement
from benchmarks.scale.real_fleet import Fleet, Run, started
from benchmarks.scale.real_worker import Setting, make_cards, memory_for
from benchmarks.scale.simulate import Answered, Figures, simulate
from benchmarks.scale.worker import BatchWorker
from benchmarks.scale.workload import Trace, poisson, zipf

POLICY = "bounded"
CLIENTS = 6
MOST = 8
TOKENS = 4
EXPONENT = 1.0
UTILISATION = 0.65
COMPARED = ("throughput", "mean", "p95", "hits")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--questions", type=int, default=800, help="of each measured run; a third to calibrate"
    )
    parser.add_argument("--cards", type=int, default=40)
    parser.add_argument("--capacity", type=int, default=10, help="cards in the memory of a worker")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    say(
        f"busy processes on {os.cpu_count()} cores in the last minute, without this: {os.getloadavg()[0]:.1f}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        folders = make_cards(Path(scratch), args.cards)
        setting = Setting(folders, memory_for(folders[0], args.capacity), MOST, TOKENS)
        with started(setting, 2) as fleet:
            rounds = [one_round(fleet, args, number) for number in range(args.rounds)]
    found = {
        loop: {name: compared([r[loop][name] for r in rounds]) for name in COMPARED}
        for loop in ("open", "closed")
    }
    if args.json:
        print(json.dumps({"medians": found, "rounds": rounds}, indent=2))
    else:
        show(found)


def one_round(fleet: Fleet, args: argparse.Namespace, number: int) -> dict[str, Any]:
    shares = zipf(args.cards, EXPONENT)
    calibration = calibrated(fleet, shares, args.questions // 3, 3 * number)
    say(
        f"round {number + 1}: a batch {1000 * calibration.fixed:.1f} ms + {1000 * calibration.each:.1f} ms a question, "
        f"a load {1000 * calibration.load:.1f} ms, both busy {calibration.interference:.2f} times as long"
    )
    rate = (
        UTILISATION
        * predicted(calibration, poisson(1.0, args.questions, shares, 3 * number), args, CLIENTS).throughput
    )
    found: dict[str, Any] = {
        "calibration": asdict(calibration) | {"ratios": len(calibration.ratios)},
        "rate": rate,
    }
    for loop, clients in (("open", None), ("closed", CLIENTS)):
        # Questions of their own: caches that have just seen the same ones would know them too well.
        trace = poisson(rate, args.questions, shares, 3 * number + (1 if clients is None else 2))
        expected = predicted(calibration, trace, args, clients)
        say(f"  {loop}, predicted: {expected}")
        measured = figures(fleet.run(trace, placement(POLICY, 2, shares), clients))
        say(f"  {loop}, measured:  {measured}")
        found[loop] = {name: (getattr(expected, name), getattr(measured, name)) for name in COMPARED}
    return found


def calibrated(fleet: Fleet, shares: NDArray[np.float64], questions: int, seed: int) -> Calibration:
    trace = poisson(1.0, questions, shares, seed)
    alone = fleet.run(trace, placement("hashing", 1, shares), clients=4)
    together = fleet.run(trace, placement("least-loaded", 2, shares), clients=2)
    return fitted(alone.batches[0], together.batches)


def predicted(
    calibration: Calibration, trace: Trace, args: argparse.Namespace, clients: int | None
) -> Figures:
    """The median of each figure over a few draws of the batches' seconds."""
    shares = zipf(args.cards, EXPONENT)
    runs = []
    for seed in range(5):
        workers = [worker(calibration, args.capacity, shares, 2 * seed + n) for n in range(2)]
        answered = simulate(
            trace,
            workers,
            placement(POLICY, 2, shares),
            clients,
            machine=2,
            interference=calibration.interference,
        )
        runs.append(asdict(answered.figures()))
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0] if name != "tiers"}
    return Figures(**medians, tiers=(medians["hits"], 1 - medians["hits"]))


def worker(calibration: Calibration, capacity: int, shares: NDArray[np.float64], seed: int) -> BatchWorker:
    """With a cache as it is after the calibration, in which both workers had questions of all cards."""
    tiers = filled([capacity], True, np.arange(len(shares)), shares, np.random.default_rng(seed))
    return BatchWorker(calibration.costs(seed), tiers, MOST)


def figures(run: Run) -> Figures:
    count = len(run.arrived)
    answered, tiers, workers = (
        np.zeros(count),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
    )
    for number, batches in enumerate(run.batches):
        for batch in batches:
            for question in batch.questions:
                answered[question], tiers[question], workers[question] = batch.finished, not batch.hit, number
    return Answered(np.array(run.arrived), answered, tiers, workers).figures()


def compared(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """Medians over the rounds. `difference`: of the measured figure from the predicted one, as a share of that."""
    expected, measured = (statistics.median(column) for column in zip(*pairs, strict=True))
    difference = statistics.median(m / e - 1 for e, m in pairs)
    return {"predicted": expected, "measured": measured, "difference": difference}


def show(found: dict[str, dict[str, dict[str, float]]]) -> None:
    print("| loop | figure | predicted | measured | difference |")
    print("|---" * 5 + "|")
    for loop, rows in found.items():
        for name, row in rows.items():
            cells = f"{row['predicted']:.4g} | {row['measured']:.4g} | {100 * row['difference']:+.1f} %"
            print(f"| {loop} | {name} | {cells} |")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
