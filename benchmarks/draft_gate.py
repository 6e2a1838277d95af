"""The gate `draft` on questions that it has not seen: accuracy and calls, and where it loses.

    python -m benchmarks.draft_gate --path FOLDER [--halves 10] [--folds 10] [--left-out] [--seed 0] [--json]

FOLDER holds one file of records (docs/gates.md, "Records") for each set of questions, with answers without cards and
their drafts. Three ways of holding questions out:

    halves    fitted on a random half of each set and judged on the other halves, as often as it says, with other seeds
    folds     fitted on all folds but one; each question is judged once
    left-out  fitted on all sets but one, and judged on that one: questions of another kind

Accuracies are means over what is held out. `always` uses cards for every question; `at` ranks the questions by score
and uses cards for that share, so it shows what the ranking allows whatever the threshold is; `oracle_at` is the same
with perfect scores. `ece` is the calibration error of P(right without cards) over all held-out questions together,
`ece_of_parts` the mean over the splits (which is larger, since few questions are in each of ten bins).
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kcard.evaluation.gates.outcome import (
    GateOutcome,
    calibration_error,
    cost_curve,
    scores_both_ways,
    split_folds,
)
from kcard.gates.base import Resources
from kcard.gates.draft import Draft
from kcard.gates.features import CachedRepresentation, MiniLMRepresentation
from kcard.gates.records import Record, read_records

SHARES = (0.5, 0.6, 0.65, 0.7, 0.85)
Split = tuple[list[Record], list[Record]]  # to fit on, to judge on


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="a folder of records, one file a set")
    parser.add_argument("--halves", type=int, default=0, help="how many random halves")
    parser.add_argument("--folds", type=int, default=0, help="how many folds")
    parser.add_argument("--left-out", action="store_true", help="leave out one set at a time")
    parser.add_argument("--share", type=float, help="the gate's setting")
    parser.add_argument("--seed", type=int, default=0, help="of the halves and folds")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    files = sorted([*args.path.glob("*.jsonl"), *args.path.glob("*.jsonl.gz")])
    sets = [list(read_records(file)) for file in files]
    resources = Resources(representation=CachedRepresentation(MiniLMRepresentation()))
    settings = {} if args.share is None else {"share": args.share}
    ways: dict[str, Iterator[Split]] = {}
    if args.halves:
        ways["halves"] = halves(sets, args.halves, args.seed)
    if args.folds:
        ways["folds"] = folds([record for records in sets for record in records], args.folds, args.seed)
    if args.left_out:
        ways["left-out"] = left_out(sets)
    for name, splits in ways.items():
        report = {"held out": name, **judge(splits, settings, resources)}
        print(json.dumps(report) if args.json else table(report), flush=True)


def halves(sets: Sequence[Sequence[Record]], count: int, seed: int) -> Iterator[Split]:
    for repeat in range(count):
        random, fitted, judged = np.random.default_rng((seed, repeat)), list[Record](), list[Record]()
        for records in sets:
            shuffled = [records[i] for i in random.permutation(len(records))]
            fitted += shuffled[: len(records) // 2]
            judged += shuffled[len(records) // 2 :]
        yield fitted, judged


def folds(records: Sequence[Record], count: int, seed: int) -> Iterator[Split]:
    for fold in split_folds(records, count, seed):
        held_out = set(fold.tolist())
        yield (
            [record for i, record in enumerate(records) if i not in held_out],
            [records[i] for i in fold],
        )


def left_out(sets: Sequence[list[Record]]) -> Iterator[Split]:
    for i, judged in enumerate(sets):
        yield [record for j, records in enumerate(sets) if j != i for record in records], judged


def judge(splits: Iterator[Split], settings: dict[str, Any], resources: Resources) -> dict[str, Any]:
    """Return means over the splits, and how far from each other they are (standard deviation of gate - always)."""
    outcomes, curves, oracles, seconds, errors = [], [], [], [], []
    probabilities, truths = [], []
    for fitted, judged in splits:
        begun = time.monotonic()
        gate = Draft.fit(fitted, settings, resources)
        seconds.append(time.monotonic() - begun)
        queries = [record.query for record in judged]
        scores = np.asarray(gate.scores(queries), dtype=np.float64)
        without, with_ = scores_both_ways(judged)
        outcomes.append(GateOutcome.of(judged, scores < gate.threshold))
        curves.append(at_shares(judged, scores))
        oracles.append(at_shares(judged, without - with_))
        probabilities.append(np.asarray(gate.correct_without(queries), dtype=np.float64))
        truths.append(without)
        errors.append(calibration_error(probabilities[-1], truths[-1]))
    gains = [outcome.accuracy - outcome.always for outcome in outcomes]
    names = (
        "accuracy",
        "share",
        "never",
        "always",
        "oracle",
        "over_asking",
        "under_asking",
        "random_same_share",
    )
    means = {name: float(np.mean([getattr(outcome, name) for outcome in outcomes])) for name in names}
    return {
        "splits": len(outcomes),
        **{name: round(mean, 4) for name, mean in means.items()},
        "gain": round(float(np.mean(gains)), 4),
        "gain_sd": round(float(np.std(gains)), 4),
        "share_max": round(max(outcome.share for outcome in outcomes), 4),
        "at": dict(zip(SHARES, np.mean(curves, axis=0).round(4).tolist(), strict=True)),
        "oracle_at": dict(zip(SHARES, np.mean(oracles, axis=0).round(4).tolist(), strict=True)),
        "ece": round(calibration_error(np.concatenate(probabilities), np.concatenate(truths)), 4),
        "ece_of_parts": round(float(np.mean(errors)), 4),
        "seconds": round(float(np.median(seconds)), 1),
    }


def at_shares(records: Sequence[Record], scores: "np.ndarray[Any, Any]") -> list[float]:
    points = cost_curve(records, scores)
    share, accuracy = (np.array([point[i] for point in points]) for i in (0, 1))
    return [float(np.interp(wanted, share, accuracy)) for wanted in SHARES]


def table(report: dict[str, Any]) -> str:
    at = "  ".join(f"{share:.0%} {accuracy:.4f}" for share, accuracy in report["at"].items())
    oracle = "  ".join(f"{share:.0%} {accuracy:.4f}" for share, accuracy in report["oracle_at"].items())
    rest = {key: value for key, value in report.items() if key not in ("at", "oracle_at", "held out")}
    lines = [f"{key:18} {value}" for key, value in rest.items()]
    return "\n".join([f"# {report['held out']}", *lines, f"{'at':18} {at}", f"{'oracle at':18} {oracle}"])


if __name__ == "__main__":
    main()
