"""The papers' claim with a real LLM: MidtermQA, MMLU and LUN, without cards and with them.

    python -m benchmarks.papers --path DATA --llm gguf:FILE.gguf --output FOLDER [--questions 100]

DATA holds MidtermQA-openbook.json, -binary.json, -fourchoice.json and LUN2.json of Feng et al. (Knowledge Card) and
mmlu_redux-dev.json. Three cards of model and index are trained on demo/corpora: midterms-2022, which MidtermQA asks
about, and moons and nobel-prizes, which are distractors. Of MMLU and LUN all three know nothing: there they can only
harm. Of LUN's sixteen demonstrations four are shown, since a small LLM takes minutes to read more.

Everything is asked with the paper's preset (its prompts, demonstrations and choices), the offline selectors and the
cards' own texts as evidence. It takes hours. What was answered is kept in FOLDER: the same command goes on from there,
and prints the table of what is finished.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPORA = Path(__file__).resolve().parents[1] / "demo" / "corpora"
CARDS = {
    "midterms-2022": "winners of the 2022 U.S. midterm elections: House, Senate and governors",
    "moons": "moons of the solar system, their planets and discoverers",
    "nobel-prizes": "Nobel prizes, their laureates and what they got them for",
}
WITH_CARDS = "bottom-up@always,top-down:auto@always,top-down:explicit@always"
KCARD = (sys.executable, "-m", "kcard")


@dataclass(frozen=True)
class Experiment:
    """One run of `kcard eval`: a task, its file, the settings that are compared, and further options."""

    name: str
    task: str
    file: str
    settings: str
    options: tuple[str, ...] = ()


EXPERIMENTS = [
    Experiment(
        "MidtermQA, open",
        "midterm",
        "MidtermQA-openbook.json",
        f"direct,retrieval,genread,{WITH_CARDS},top-down:auto,hybrid@always",
    ),
    Experiment("MidtermQA, 2-way", "midterm", "MidtermQA-binary.json", f"direct,retrieval,{WITH_CARDS}"),
    Experiment("MidtermQA, 4-way", "midterm", "MidtermQA-fourchoice.json", f"direct,retrieval,{WITH_CARDS}"),
    Experiment(
        "MMLU-Redux",
        "mmlu",
        "mmlu_redux-dev.json",
        "direct,bottom-up@always,top-down:auto,top-down:explicit@always",
    ),
    Experiment(
        "LUN, 2-way", "lun", "LUN2.json", "direct,bottom-up@always,top-down:explicit@always", ("--shots", "4")
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="folder of the data")
    parser.add_argument("--llm", required=True, help="as for kcard eval")
    parser.add_argument(
        "--output", type=Path, required=True, help="where cards, answers and results are kept"
    )
    parser.add_argument("--questions", type=int, default=100, help="of each set, drawn with seed 0")
    parser.add_argument("--sets", nargs="*", choices=[each.name for each in EXPERIMENTS], help="default: all")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    home = args.output / "home"
    os.environ["KCARD_HOME"] = str(home)
    prepare_cards(home)
    for experiment in EXPERIMENTS:
        if args.sets and experiment.name not in args.sets:
            continue
        results = args.output / f"{experiment.name}, {args.questions} questions.jsonl"
        if not results.exists():
            rows = evaluate(experiment, args)
            results.write_text(rows, encoding="utf-8")
        lines = results.read_text(encoding="utf-8").splitlines()
        print(f"\n{experiment.name}, {args.llm}\n")
        print(table([json.loads(line) for line in lines]), flush=True)


def prepare_cards(home: Path) -> None:
    """Train and publish the cards that are not there yet."""
    for name, description in CARDS.items():
        if (home / f"{name}.published").exists():
            continue
        kcard("train", CORPORA / name, "--name", name, "--kind", "both", "--description", description)
        kcard("publish", name)
        (home / f"{name}.published").touch()


def evaluate(experiment: Experiment, args: argparse.Namespace) -> str:
    """Run an experiment, or go on with the run that was interrupted; return a line of JSON for each setting."""
    file = str((args.path / experiment.file).resolve())
    for line in kcard("runs", "--json").splitlines():
        run = json.loads(line)
        command = " ".join(run["command"])
        if f"--path {file} --limit {args.questions} " in command and f"--llm {args.llm} " in command:
            return kcard("eval", "--resume", run["run"], "--path", file, "--json")
    return kcard(
        *("eval", experiment.task, "--path", file, "--limit", args.questions),
        *experiment.options,
        *("--settings", experiment.settings, "--preset", "knowledge-card"),
        *("--selectors", "offline", "--evidence", "own", "--llm", args.llm, "--json"),
    )


def kcard(*arguments: object) -> str:
    return subprocess.run(
        [*KCARD, *map(str, arguments)], check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| setting | n | score | 95 % interval | p | calls | tokens read | s a question |",
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        low, high = row["interval"]
        p = ""
        if row["p"] is not None:
            p = f"{row['p']:.2g}"
        each = row["seconds"] / row["n"]
        lines.append(
            f"| {row['setting']} | {row['n']} | {row['value']:.3f} | [{low:.3f}, {high:.3f}] | {p} | {row['calls']} | "
            f"{row['tokens_in']} | {each:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
