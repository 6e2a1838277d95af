"""Gates on what a real LLM answered: is the accuracy of asking always reached with fewer calls?

    python -m benchmarks.gate_replays --path FOLDER [--repeats 5] [--share 0.7] [--json]

FOLDER holds one file of records a data set (*.jsonl.gz or *.jsonl), each question answered without and with retrieved
passages (kcard.gates.record). Two ways of keeping questions apart:

    halves     each gate is fitted on a random half of each data set and judged on the other halves, `--repeats` times
    left out   each gate is fitted on all data sets but one and judged on that one

A question's outcome is averaged over the repeats in which it was kept apart; intervals (95 %) are bootstrapped over
questions. Kinds that need an LLM (self-ask, uncertainty) are not among them: such records hold no log-probabilities.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kcard.evaluation.gates.outcome import Floats, both_ways
from kcard.evaluation.gates.ranking import SHARES, calibration_error
from kcard.evaluation.intervals import interval
from kcard.gates.kinds import Fitted, Probabilistic, Resources, find
from kcard.gates.record import Record, read_records
from kcard.gates.representation import CachedRepresentation, MiniLM

KINDS = ("draft", "skr-knn", "thrust", "bm25", "skr-classifier")
KEPT = (
    1.0,
    0.75,
    0.5,
)  # shares of the questions that are answered where the gate may abstain from the others
Split = tuple[list[int], list[int]]


@dataclass
class Sums:
    """Of one gate over all splits, by question: how often it was judged, how right it was, how often it sought."""

    count: Floats
    right: Floats
    seeks: Floats
    over: Floats
    under: Floats
    at: Mapping[float, Floats]
    probability: Floats
    likelier: Floats
    seconds: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, n: int) -> "Sums":
        count, right, seeks, over, under, probability, likelier = np.zeros((7, n))
        at = {share: np.zeros(n) for share in SHARES}
        return cls(count, right, seeks, over, under, at, probability, likelier)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="a folder of records")
    parser.add_argument("--repeats", type=int, default=5, help="random halves")
    parser.add_argument(
        "--share", type=float, default=0.7, help="of the questions that may use cards (draft)"
    )
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    sets = {path.name.split(".")[0]: read_records(path) for path in sorted(args.path.glob("*.jsonl*"))}
    if not sets:
        parser.error(f"{args.path} holds no .jsonl or .jsonl.gz file")
    records = [record for found in sets.values() for record in found]
    names = [name for name, found in sets.items() for _ in found]
    resources = Resources(representation=CachedRepresentation(MiniLM()))
    reports = {}
    for way, splits in (
        ("halves", [*halves(names, args.repeats, args.seed)]),
        ("left out", [*left_out(names)] if len(sets) > 1 else []),
    ):
        sums = {kind: Sums.of(len(records)) for kind in args.kinds}
        for number, split in enumerate(splits, 1):
            print(f"{way}: {number} of {len(splits)}", file=sys.stderr)
            for kind, total in sums.items():
                given = {"share": args.share} if kind == "draft" else {}
                judge(records, split, find(kind).fit, given, resources, total)
        if splits:
            reports[way] = [row(kind, records, total, args.seed) for kind, total in sums.items()]
            reports[f"{way}, by data set"] = by_set(records, names, sums)
    print(
        json.dumps(reports) if args.json else "\n\n".join(f"{way}\n{table(r)}" for way, r in reports.items())
    )


def halves(names: Sequence[str], repeats: int, seed: int) -> Iterator[Split]:
    """Random halves within each data set: the questions to fit on, and the others."""
    groups = grouped(names)
    for repeat in range(repeats):
        random = np.random.default_rng((seed, repeat))
        fitted: list[int] = []
        for rows in groups.values():
            fitted += random.permutation(rows)[: len(rows) // 2].tolist()
        yield sorted(fitted), sorted(set(range(len(names))) - set(fitted))


def left_out(names: Sequence[str]) -> Iterator[Split]:
    for rows in grouped(names).values():
        yield sorted(set(range(len(names))) - set(rows)), rows


def grouped(names: Sequence[str]) -> dict[str, list[int]]:
    found = defaultdict(list)
    for i, name in enumerate(names):
        found[name].append(i)
    return found


def judge(
    records: Sequence[Record],
    split: Split,
    fit: Any,
    given: Mapping[str, Any],
    resources: Resources,
    total: Sums,
) -> None:
    started = time.process_time()
    gate: Fitted = fit([records[i] for i in split[0]], given, resources)
    total.seconds.append(time.process_time() - started)
    rows = split[1]
    queries = [records[i].query for i in rows]
    without, with_ = both_ways([records[i] for i in rows])
    scores = np.asarray(gate.scores(queries), dtype=np.float64)
    seeks = scores < gate.threshold
    total.count[rows] += 1
    total.right[rows] += np.where(seeks, with_, without)
    total.seeks[rows] += seeks
    total.over[rows] += seeks & (without >= with_)
    total.under[rows] += ~seeks & (without < with_)
    order = np.argsort(scores, kind="stable")
    for share, sums in total.at.items():
        asked = np.zeros(len(rows), dtype=bool)
        asked[order[: round(share * len(rows))]] = True
        sums[rows] += np.where(asked, with_, without)
    if isinstance(gate, Probabilistic):
        alone = np.asarray(gate.correct_without(queries), dtype=np.float64)
        total.probability[rows] += alone
        total.likelier[rows] += np.where(seeks, alone - scores, alone)


def row(kind: str, records: Sequence[Record], total: Sums, seed: int) -> dict[str, Any]:
    """The figures of a gate over all questions, each averaged over the splits in which it was judged."""
    judged = total.count > 0
    count = total.count[judged]
    without, with_ = (way[judged] for way in both_ways(records))
    right = total.right[judged] / count
    share = float((total.seeks[judged] / count).mean())
    low, high = interval((right - with_).tolist(), seed, paired=True)
    found = {
        "gate": kind,
        "n": int(judged.sum()),
        "accuracy": float(right.mean()),
        "share": share,
        "over always": float((right - with_).mean()),
        "low": low,
        "high": high,
        "random": float((1 - share) * without.mean() + share * with_.mean()),
        **{f"at {share:.0%}": float((sums[judged] / count).mean()) for share, sums in total.at.items()},
        "over-asking": float((total.over[judged] / count).mean()),
        "under-asking": float((total.under[judged] / count).mean()),
        "never": float(without.mean()),
        "always": float(with_.mean()),
        "oracle": float(np.maximum(without, with_).mean()),
        "fit seconds": float(np.mean(total.seconds)),
    }
    if total.probability.any():
        found["ece"] = calibration_error(total.probability[judged] / count, without)
        order = np.argsort(-total.likelier[judged] / count, kind="stable")
        for kept in KEPT:
            found[f"answering {kept:.0%}"] = float(right[order[: round(kept * len(order))]].mean())
    return found


def by_set(records: Sequence[Record], names: Sequence[str], sums: Mapping[str, Sums]) -> list[dict[str, Any]]:
    without, with_ = both_ways(records)
    found = []
    for name, rows in grouped(names).items():
        line: dict[str, Any] = {"data set": name, "never": without[rows].mean(), "always": with_[rows].mean()}
        for kind, total in sums.items():
            count = np.maximum(total.count[rows], 1)
            line[kind] = float((total.right[rows] / count).mean())
            line[f"{kind} share"] = float((total.seeks[rows] / count).mean())
        found.append(line)
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """As Markdown."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for one in rows:
        cells = (one.get(column, "-") for column in columns)
        lines.append(
            "| "
            + " | ".join(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells)
            + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
