"""Time of `kcard` commands in a cold process: an earlier revision against the working tree.

    python -m benchmarks.cold_start [--before HEAD] [--runs 5] [--home FOLDER] [--question Q] [--json]

The earlier revision is extracted with `git archive`. Each run is a process of its own, and the revisions take turns, so
that other load on the machine affects both. The cards are an index of demo/corpora/moons and, with `--home`, the cards
published there, which `--question` should be about (demo/run.py creates a home with three trained cards). An untimed
run precedes each case, to fill the file cache and the cache of embeddings.

Besides seconds, prints how many of kcard's modules a command imports, and in how many of them a function runs.
"""

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# A function's code is optimized (flag 1), that of a module's or a class's body is not. Comprehensions do not count, nor
# does what a dataclass decorator runs.
COUNT = """
import json, sys
sys.argv = {command}
ran = set()
MADE = {{"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>", "__create_fn__"}}
def called(frame, event, _):
    if event == "call" and frame.f_code.co_flags & 1 and frame.f_code.co_name not in MADE:
        ran.add(frame.f_globals.get("__name__", ""))
from kcard.cli.main import run
sys.setprofile(called)
try:
    run()
except SystemExit:
    pass
sys.setprofile(None)
ours = {{n for n, m in sys.modules.items() if n.split(".")[0] == "kcard" and getattr(m, "__file__", None)}}
print(json.dumps([len(ours), len(ours & ran)]), file=sys.stderr)
"""
MOON, CAPITAL = "Who discovered the moon Phoebe?", "What is the capital of France?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default="HEAD", help="a revision")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--home", type=Path, help="a KCARD_HOME with trained cards")
    parser.add_argument("--question", default=MOON, help="a question to those cards")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        before = Path(scratch) / "before"
        lay_out(args.before, before)
        homes = {name: Path(scratch) / f"home-{name}" for name in ("before", "now")}
        trees = {"before": before, "now": ROOT}
        for name, home in homes.items():
            fill(trees[name], home)
        cases = {
            "--help": ["--help"],
            "train --help": ["train", "--help"],
            "ask, no card needed": ["ask", CAPITAL, "--cards", "moons"],
            "ask, an index": ["ask", MOON, "--cards", "moons", "--gate", "always"],
        }
        seconds = {name: compared(trees, homes, command, args.runs) for name, command in cases.items()}
        if args.home:
            both = {name: Path(scratch) / f"trained-{name}" for name in trees}
            for home in both.values():  # the later revision may migrate it
                shutil.copytree(args.home, home)
            for mode in ("top-down", "bottom-up"):
                command = ["ask", args.question, "--gate", "always", "--mode", mode]
                seconds[f"ask, trained cards, {mode}"] = compared(trees, both, command, args.runs)
    report = {"before": args.before, "runs": args.runs, "seconds": seconds}
    print(json.dumps(report) if args.json else table(report))


def fill(tree: Path, home: Path) -> None:
    corpus = ROOT / "demo" / "corpora" / "moons"
    options = ["--description", "moons of the solar system: planets, discoverers and years of discovery"]
    timed(tree, home, ["train", "--corpus", str(corpus), "--kind", "retrieval", "--name", "moons", *options])
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
    modules = {name: counted(tree, homes[name], command) for name, tree in trees.items()}
    return medians | {"same answer": len(answers) == 1, "modules": modules}


def lay_out(revision: str, folder: Path) -> None:
    """Put the files of a revision into a new folder, from which it can run."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
        tree.extractall(folder, filter="data")
    install_entry_points(folder)


def install_entry_points(tree: Path) -> None:
    """Let a tree beside the installed one have the entry points of its own pyproject.toml."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tree / "src" / f"kcard-{project.get('version', '0')}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: kcard\nVersion: 0\n", encoding="utf-8")
    groups = project["entry-points"].items()
    lines = [
        line for group, names in groups for line in (f"[{group}]", *(f"{n} = {v}" for n, v in names.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def counted(tree: Path, home: Path, command: Sequence[str]) -> list[int]:
    """How many modules of kcard a command imports, and in how many of these a function runs."""
    code = COUNT.format(command=["kcard", *command])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=home.parent,
        env=environment_of(tree, home),
        capture_output=True,
        text=True,
    )
    counts: list[int] = json.loads(done.stderr.splitlines()[-1])
    return counts


def timed(tree: Path, home: Path, command: Sequence[str]) -> tuple[float, str]:
    """Wall seconds of one process of the kcard in `tree`, and what it printed."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kcard", *command],
        cwd=home.parent,
        env=environment_of(tree, home),
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"kcard {' '.join(command)} in {tree} failed: {done.stderr.strip()[-500:]}")
    return seconds, done.stdout


def environment_of(tree: Path, home: Path) -> dict[str, str]:
    """Modules are compiled once, as in an installation, whatever is set here."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"KCARD_HOME": str(home), "PYTHONPATH": str(tree / "src"), "HF_HUB_OFFLINE": "1"}


def table(report: dict[str, Any]) -> str:
    lines = [
        f"| kcard | {report['before']}, s | now, s | now / before | same answer | modules, {report['before']} | now |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, seconds in report["seconds"].items():
        ratio, same = seconds["now"] / seconds["before"], "yes" if seconds["same answer"] else "no"
        modules = [f"{all_}, {run} run" for all_, run in (seconds["modules"][t] for t in ("before", "now"))]
        times = f"{seconds['before']:.2f} | {seconds['now']:.2f} | {ratio:.2f}"
        lines.append(f"| {name} | {times} | {same} | {' | '.join(modules)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
