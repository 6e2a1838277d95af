"""CPU and wall seconds of kcard on a laptop, in one table with plain alternatives.

    python -m benchmarks.laptop [--runs 3] [--rows NAME,NAME] [--corpus DIR] [--isa avx2] [--against REVISION]
                                [--json FILE] [--markdown FILE]

Every row runs in a process of its own, on the CPU. Figures are medians over the runs; each run measures every row once,
with kcard, the earlier revision and the plain alternative in turn, so that other load on the machine affects all of
them. On a busy machine, compare CPU seconds.

index         kcard train --kind retrieval over the manual; beside it sentence-transformers and bm25s over the same
              passages (benchmarks/laptop_search.py)
cold ask      kcard ask, a question to that card; beside it the same search, imports included
warm ask      one question of 20, in a process that has answered one
batch         one question of a batch of 20
check         kcard check, a claim against a page of the manual
publish       the card's first version
unchanged     kcard publish of the same card again
sync          kcard sync of one changed page, the new version published
sync nothing  kcard sync of an unchanged folder
help          kcard --help
train small   kcard train, all defaults, of demo/corpora/moons (--small for another corpus), its exam included
train manual  kcard train, all defaults, of the manual

The last two take minutes and run only with --rows or --slow.

`--corpus`: a manual as a folder of text; by default 600 kB of the documentation that comes with Python: the topics of
pydoc, then pages of the standard library's modules.

`--against`: an earlier revision, which is extracted and runs the same rows in the same run.

`--isa avx2`: simulate an ordinary machine in all child processes. oneDNN (ONEDNN_MAX_CPU_ISA), MKL
(MKL_ENABLE_INSTRUCTIONS), ATen (ATEN_CPU_CAPABILITY), OpenBLAS (OPENBLAS_CORETYPE) and numpy (NPY_DISABLE_CPU_FEATURES)
then use AVX2 at most. onnxruntime has no such switch (MLAS uses all instructions of the processor), nor have tokenizers
and the sentence splitter, so these parts of a row are not slowed down.
"""

import argparse
import importlib
import json
import os
import platform
import pydoc
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cold_start import ROOT, lay_out
from kcard.embedded import minilm
from kcard.system import cores, features

SEARCH = ROOT / "benchmarks" / "laptop_search.py"
MANUAL = 600_000  # bytes
MODULES = (
    "os", "re", "json", "argparse", "logging", "pathlib", "collections", "itertools", "functools", "datetime", "random",
    "subprocess", "threading", "socket", "sqlite3", "csv", "urllib.request", "email.message", "http.client", "zipfile",
    "tarfile", "shutil", "tempfile", "statistics", "decimal", "fractions", "asyncio", "typing", "unittest", "string",
)  # fmt: skip
QUESTIONS = 20
FAST = (
    "help",
    "index",
    "cold ask",
    "warm ask",
    "batch",
    "check",
    "publish",
    "unchanged",
    "sync",
    "sync nothing",
)
SLOW = ("train small", "train manual")
NEEDED = ("index", "publish")  # by other rows
KCARD, BEFORE, PLAIN = "kcard", "before", "plain"

Seconds = tuple[float, float]


@dataclass
class Tree:
    """A revision of kcard, and what its rows have measured: (CPU, wall) seconds of each run."""

    root: Path
    seconds: dict[str, list[Seconds]] = field(default_factory=dict)

    def add(self, row: str, seconds: Seconds) -> None:
        self.seconds.setdefault(row, []).append(seconds)


@dataclass(frozen=True)
class Run:
    """One run: a home and a copy of the manual for each tree.

    row_names  the rows
    questions  another set in each run
    page       of the manual, which changes
    """

    number: int
    scratch: Path
    manual: Path
    small: Path
    isa: dict[str, str]
    row_names: Sequence[str]
    questions: Sequence[str]
    page: str

    def rows(self, trees: Mapping[str, Tree], plain: Tree) -> None:
        """Measure every row once, the trees in turns."""
        for name in trees:
            shutil.copytree(self.manual, self.folder(name) / "manual")
        question_file = self.scratch / f"questions-{self.number}.json"
        question_file.write_text(json.dumps(self.questions), encoding="utf-8")
        sentence = next(line for line in self.text(self.manual).splitlines() if len(line.split()) > 6).strip()
        ask = ["ask", self.questions[0], "--cards", "manual", "--gate", "always"]
        train = ["train", "--description", "A manual of Python"]
        # In the order of FAST and SLOW: what comes later needs what came before.
        commands: dict[str, Callable[[Path], Sequence[str]]] = {
            "help": lambda _: ["--help"],
            "index": lambda folder: [
                *(
                    *train,
                    "--corpus",
                    str(folder / "manual"),
                    "--kind",
                    "retrieval",
                    "--name",
                    "manual",
                    "--no-exam",
                )
            ],
            "publish": lambda _: ["publish", "manual"],
            "unchanged": lambda _: ["publish", "manual"],
            "cold ask": lambda _: ask,
            "check": lambda folder: ["check", sentence, "--evidence", str(folder / "manual" / self.page)],
            "sync": lambda folder: ["sync", str(self.changed(folder)), "--card", "manual"],
            "sync nothing": lambda folder: ["sync", str(folder / "manual"), "--card", "manual"],
            "train small": lambda _: ["train", "--corpus", str(self.small), "--name", "small"],
            "train manual": lambda folder: [*train, "--corpus", str(folder / "manual"), "--name", "whole"],
        }
        for row, command in commands.items():
            if row not in {*self.row_names, *NEEDED}:
                continue
            for name, tree in trees.items():
                folder = self.folder(name)
                tree.add(row, self.timed(["-m", "kcard", *command(folder)], folder, tree.root)[0])
            if row == "index":
                self.plain_index(plain, self.folder(KCARD) / "home" / "drafts" / "manual" / "passages.jsonl")
            elif row == "cold ask":
                plain.add(
                    row, self.timed([*self.plain_ask(question_file), "--cold"], self.folder(PLAIN), ROOT)[0]
                )
        if {"warm ask", "batch"} & set(self.row_names):
            self.warm(trees, plain, question_file)

    def warm(self, trees: Mapping[str, Tree], plain: Tree, question_file: Path) -> None:
        """The rows that are measured inside of a process."""
        ask = ["-P", str(SEARCH), "ask", str(question_file), "--card", "manual"]
        for name, tree in {**trees, PLAIN: plain}.items():
            command = self.plain_ask(question_file) if name == PLAIN else ask
            _, printed = self.timed(command, self.folder(name), tree.root)
            measured = json.loads(printed.splitlines()[-1])
            tree.add("warm ask", measured["warm"])
            tree.add("batch", measured["batch"])

    def plain_index(self, plain: Tree, passages: Path) -> None:
        folder = self.folder(PLAIN)
        folder.mkdir(parents=True)
        command = ["-P", str(SEARCH), "plain-index", str(passages), str(folder / "index")]
        plain.add("index", self.timed([*command, "--encoder", str(minilm.folder())], folder, ROOT)[0])

    def plain_ask(self, question_file: Path) -> list[str]:
        index = self.folder(PLAIN) / "index"
        return [
            "-P",
            str(SEARCH),
            "plain-ask",
            str(question_file),
            str(index),
            "--encoder",
            str(minilm.folder()),
        ]

    def folder(self, tree: str) -> Path:
        return self.scratch / f"run-{self.number}" / tree

    def text(self, manual: Path) -> str:
        return (manual / self.page).read_text(encoding="utf-8")

    def changed(self, folder: Path) -> Path:
        """The copy of the manual in a folder, with a paragraph more on one page."""
        with (folder / "manual" / self.page).open("a", encoding="utf-8") as stream:
            stream.write(
                f"\n\nThe page was revised for the {self.number}th time, and says so in this paragraph.\n"
            )
        return folder / "manual"

    def timed(self, command: Sequence[str], folder: Path, tree: Path) -> tuple[Seconds, str]:
        """(CPU, wall) seconds of one process of Python and its children, and what it printed."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {
            "KCARD_HOME": str(folder / "home"),
            "PYTHONPATH": str(tree / "src"),
            "HF_HUB_OFFLINE": "1",
        }
        started = time.perf_counter()
        with (
            tempfile.TemporaryFile("w+") as output,
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                [sys.executable, *command],
                env=environment | self.isa,
                stdout=output,
                stderr=errors,
                cwd=self.scratch,
            ) as process,
        ):
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            wall = time.perf_counter() - started
            output.seek(0)
            errors.seek(0)
            if process.returncode:
                raise SystemExit(f"{' '.join(command)} in {tree} failed: {errors.read().strip()[-500:]}")
            return (used.ru_utime + used.ru_stime, wall), output.read()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", default=",".join(FAST), help=f"of {', '.join((*FAST, *SLOW))}")
    parser.add_argument("--slow", action="store_true", help=f"also {' and '.join(SLOW)}")
    parser.add_argument(
        "--corpus", type=Path, help="a manual, a folder of .txt; default: of Python's documentation"
    )
    parser.add_argument(
        "--small", type=Path, default=ROOT / "demo" / "corpora" / "moons", help="a small corpus"
    )
    parser.add_argument("--isa", choices=("avx2",), help="the widest instructions to use")
    parser.add_argument("--against", metavar="REVISION", help="an earlier revision")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    args = parser.parse_args()
    row_names = [*args.rows.split(","), *(SLOW if args.slow else ())]
    if unknown := set(row_names) - {*FAST, *SLOW}:
        parser.error(f"unknown rows {', '.join(sorted(unknown))}: choose of {', '.join((*FAST, *SLOW))}")
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        manual = args.corpus.absolute() if args.corpus else write_manual(scratch / "python")
        trees = {}
        if args.against:
            lay_out(args.against, scratch / "before")
            trees[BEFORE] = Tree(scratch / "before")
        trees[KCARD] = Tree(ROOT)
        plain = Tree(ROOT)
        for tree in trees.values():
            compile_modules(tree.root)
        isa = narrowed() if args.isa else {}
        for number in range(1, args.runs + 1):
            questions, page = ask_about(manual, number)
            run = Run(number, scratch, manual, args.small.absolute(), isa, row_names, questions, page)
            run.rows(trees, plain)
            print(f"run {number} of {args.runs} done", file=sys.stderr)
        size = sum(path.stat().st_size for path in texts_of(manual))
    report = {
        **machine(args.isa),
        "runs": args.runs,
        "manual": size,
        "against": args.against,
        "seconds": {name: tree.seconds for name, tree in {**trees, PLAIN: plain}.items()},
    }
    shown = table(report, row_names)
    print(shown)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.markdown:
        args.markdown.write_text(shown + "\n", encoding="utf-8")


def write_manual(folder: Path) -> Path:
    """Write a manual of MANUAL bytes, a page a file, from the documentation that Python carries."""
    folder.mkdir()
    written = 0
    for name, text in pages():
        if written >= MANUAL:
            break
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        written += len(text.encode())
    return folder


def pages() -> Iterable[tuple[str, str]]:
    """(name, text) of each page: pydoc's topics, then modules of the standard library."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    yield from sorted(topics.items())
    for name in MODULES:
        yield f"module-{name}", pydoc.plain(pydoc.render_doc(importlib.import_module(name)))


def texts_of(manual: Path) -> list[Path]:
    return sorted(path for path in manual.rglob("*") if path.is_file())


def ask_about(manual: Path, number: int) -> tuple[list[str], str]:
    """Questions about what stands in the manual, and a page of usual length; both differ from run to run."""
    files = texts_of(manual)
    lines = [line.split() for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    subjects = sorted({" ".join(words[:8]).rstrip(".,;:") for words in lines if len(words) >= 8})
    random.Random(0).shuffle(subjects)
    each = QUESTIONS + 1
    questions = [
        f"What does the manual say about {subject}?" for subject in subjects[(number - 1) * each :][:each]
    ]
    usual = [path for path in files if 2000 < path.stat().st_size < 20_000]
    return questions, random.Random(number).choice(usual or files).relative_to(manual).as_posix()


def compile_modules(tree: Path) -> None:
    """Compile a tree's modules, as an installation does."""
    folders = [
        str(path.resolve()) for path in [*(tree / "src" / "kcard").iterdir(), tree / "src"] if path.is_dir()
    ]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], check=True)


def narrowed() -> dict[str, str]:
    """Environment variables with which numerical libraries use AVX2 at most."""
    config: Any = np.show_config(mode="dicts")
    wide = [name for name in config["SIMD Extensions"]["found"] if name.startswith(("AVX512", "X86_V4"))]
    return {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "DNNL_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": " ".join(wide),
    }


def machine(isa: str | None) -> dict[str, Any]:
    """What was measured on."""
    names = (
        {
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        }
        if Path("/proc/cpuinfo").exists()
        else {platform.processor()}
    )
    return {
        "processor": ", ".join(sorted(names)),
        "cores": cores(),
        "features": features(),
        "isa": isa or "all",
    }


def table(report: Mapping[str, Any], row_names: Sequence[str]) -> str:
    """Medians in Markdown: CPU seconds, and wall seconds in brackets."""
    seconds: dict[str, dict[str, list[Seconds]]] = report["seconds"]
    columns = [name for name in (BEFORE, KCARD, PLAIN) if name in seconds]
    heads = {BEFORE: report["against"], KCARD: "kcard", PLAIN: "plain"}
    ratios = [(KCARD, BEFORE), (KCARD, PLAIN)] if BEFORE in columns else [(KCARD, PLAIN)]
    titles = [
        "CPU s (wall s)",
        *(str(heads[name]) for name in columns),
        *(f"{heads[one]} / {heads[other]}" for one, other in ratios),
    ]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for row in (*FAST, *SLOW):
        if row not in row_names or row not in seconds[KCARD]:
            continue
        medians = {name: middle(seconds[name][row]) for name in columns if row in seconds[name]}
        cells = [
            f"{show(medians[name][0])} ({show(medians[name][1])})" if name in medians else ""
            for name in columns
        ]
        cells += [
            f"{medians[one][0] / medians[other][0]:.2f}" if other in medians else "" for one, other in ratios
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    facts = (
        f"{report['processor']}, {report['cores']} cores, instructions: {report['isa']}; "
        f"medians of {report['runs']} runs; a manual of {report['manual'] / 1000:.0f} kB"
    )
    return "\n".join([*lines, "", facts])


def middle(runs: Sequence[Seconds]) -> Seconds:
    return statistics.median(cpu for cpu, _ in runs), statistics.median(wall for _, wall in runs)


def show(seconds: float) -> str:
    """Three digits."""
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


if __name__ == "__main__":
    main()
