"""How long one `kcard` command takes from a cold process: an earlier revision against the working tree.

    python -m benchmarks.cold_start [--before HEAD] [--runs 5] [--home FOLDER] [--question Q] [--json]

The earlier revision is laid out beside, with `git archive`; each run is a process of its own, the two in turns, so that
what else the machine does meets both. The cards are an index of demo/corpora/moons; with `--home` also those published
there, of which `--question` should ask (demo/run.py leaves a home with three trained cards). A run that is not timed
comes first in each case: files are read from memory, and embeddings that are remembered are there.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MOON, CAPITAL = "Who discovered the moon Phoebe?", "What is the capital of France?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default="HEAD", help="a revision")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--home", type=Path, help="a KCARD_HOME with trained cards")
    parser.add_argument("--question", default=MOON, help="what those cards are asked")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        before = Path(scratch) / "before"
        archive = subprocess.run(
            ["git", "archive", args.before], cwd=ROOT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
            tree.extractall(before, filter="data")
        homes = {name: Path(scratch) / f"home-{name}" for name in ("before", "now")}
        trees = {"before": before, "now": ROOT}
        for name, home in homes.items():
            fill(trees[name], home)
        cases = {
            "--help": ["--help"],
            "ask, no card needed": ["ask", CAPITAL, "--cards", "moons"],
            "ask, an index": ["ask", MOON, "--cards", "moons", "--gate", "always"],
        }
        found = {name: compared(trees, homes, command, args.runs) for name, command in cases.items()}
        if args.home:
            both = {name: args.home.resolve() for name in trees}
            for mode in ("top-down", "bottom-up"):
                command = ["ask", args.question, "--gate", "always", "--mode", mode]
                found[f"ask, trained cards, {mode}"] = compared(trees, both, command, args.runs)
    report = {"before": args.before, "runs": args.runs, "seconds": found}
    print(json.dumps(report) if args.json else table(report))


def fill(tree: Path, home: Path) -> None:
    corpus = ROOT / "demo" / "corpora" / "moons"
    made = ["--description", "moons of the solar system: planets, discoverers and years of discovery"]
    timed(tree, home, ["train", "--corpus", str(corpus), "--kind", "retrieval", "--name", "moons", *made])
    timed(tree, home, ["publish", "moons"])


def compared(
    trees: Mapping[str, Path], homes: Mapping[str, Path], command: Sequence[str], runs: int
) -> dict[str, Any]:
    """Median seconds of each tree, in turns, and whether what they answer is the same."""
    first = {name: timed(tree, homes[name], command)[1] for name, tree in trees.items()}
    seconds: dict[str, list[float]] = {name: [] for name in trees}
    for _ in range(runs):
        for name, tree in trees.items():
            seconds[name].append(timed(tree, homes[name], command)[0])
    medians = {name: round(statistics.median(found), 3) for name, found in seconds.items()}
    answers = {text.split("\n")[0] for text in first.values()}
    return medians | {"same answer": len(answers) == 1}


def timed(tree: Path, home: Path, command: Sequence[str]) -> tuple[float, str]:
    """Wall seconds of one process of the kcard in `tree`, and what it printed."""
    environment = os.environ | {
        "KCARD_HOME": str(home),
        "PYTHONPATH": str(tree / "src"),
        "HF_HUB_OFFLINE": "1",
    }
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kcard", *command],
        cwd=home.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"kcard {' '.join(command)} of {tree}: {done.stderr.strip()[-500:]}")
    return seconds, done.stdout


def table(report: dict[str, Any]) -> str:
    lines = [
        f"| kcard | {report['before']}, s | now, s | now / before | same answer |",
        "|---|---|---|---|---|",
    ]
    for name, found in report["seconds"].items():
        ratio, same = found["now"] / found["before"], "yes" if found["same answer"] else "no"
        lines.append(f"| {name} | {found['before']:.2f} | {found['now']:.2f} | {ratio:.2f} | {same} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
