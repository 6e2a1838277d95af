"""Every task under every setting on embedded models, and two tasks through a real server: make evaluation

    python -m benchmarks.evaluation --path DATA [--home DIR] [--limit N] [--served N] [--settings A,B] [--write]

DATA contains the tasks' files (FILES); tasks without a file are skipped and listed. --write updates the tables and
plots in docs/evaluation.md.

Each task is evaluated with the demo's three cards and, if the data set has passages (SQuAD, NQ ...), with a retrieval
card of the passages of these questions and of as many others, which contain the answers. A card of the demo contains
MidtermQA's answers; the cards know nothing about MMLU, LUN, TruthfulQA and PopQA, which shows whether they do harm. The
embedded LLM only extracts and recalls.

The server is transformers', and its model the package's memory, an OPT of 1.2 million parameters with a window of 160
tokens: this tests the path through a server, not the value of cards.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kcard
from benchmarks.evaluation_page import Measured, write_page
from benchmarks.model_server import served
from kcard.evaluation.runs.runner import sample_ids
from kcard.evaluation.tasks.base import read_task, task_names
from kcard.hub.registry import Hub
from kcard.llms.embedded_llm import POSITIONS, WEIGHTS

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = "direct,bottom-up,top-down,top-down:explicit,hybrid,retrieval,genread,gkp,recitation,replug,cards+retrieval"
SERVED = "direct,bottom-up,top-down,retrieval"
# Task and file; of several files of a task that are there each is asked.
FILES = (
    ("midterm", "MidtermQA-openbook.json"),
    ("midterm", "MidtermQA-binary.json"),
    ("midterm", "MidtermQA-fourchoice.json"),
    ("lun", "LUN2.json"),
    ("lun", "LUN4.json"),
    ("mmlu", "mmlu"),
    ("mmlu", "mmlu_redux-dev.json"),
    ("popqa", "popQA.tsv"),
    ("popqa", "popqa-dev.json"),
    ("entityquestions", "entityquestions"),
    ("truthfulqa", "truthfulqa-dev.json"),
    ("wikidyk", "wikidyk-dev.json"),
    ("squad", "reading/squad-dev.jsonl.gz"),
    ("nq", "reading/nq-dev.jsonl.gz"),
    ("triviaqa", "triviaqa-dev.jsonl"),
    ("hotpotqa", "multihop/hotpotqa-dev.jsonl.gz"),
    ("2wiki", "multihop/2wikimultihopqa-dev.jsonl.gz"),
    ("musique", "musique-dev.jsonl"),
)
THROUGH_A_SERVER = ("MidtermQA-openbook.json", "MidtermQA-binary.json")
DEMO = ("midterms-2022", "moons", "nobel-prizes")


@dataclass(frozen=True)
class Bench:
    """Where cards and runs are kept, and how much is asked."""

    hub: Hub
    data: Path
    limit: int
    seed: int

    def measure(self, task: str, file: str, settings: str, **options: Any) -> list[Measured]:
        """One row for each setting."""
        cards = [*self._demo(), *self._own(task, file)]
        print(f"{task} {file}", flush=True)
        evaluation = kcard.evaluate(
            task,
            path=self.data / file,
            settings=settings,
            limit=self.limit,
            seed=self.seed,
            cards=cards,
            hub=self.hub,
            **options,
        )
        for row in evaluation.rows:
            print(f"  {row.setting:<20} {row.metric} {row.value:.3f}  {row.calls} calls  {row.seconds:.1f} s")
        answerable = len(cards) > len(DEMO) or task == "midterm"
        return [Measured(row, answerable) for row in evaluation.rows]

    def _demo(self) -> Iterator[str]:
        for name in DEMO:
            yield self._card(name, ROOT / "demo" / "corpora" / name, f"facts about {name}")

    def _own(self, task: str, file: str) -> Iterator[str]:
        """A card of the passages of the questions that are asked and of as many others."""
        data = read_task(task, self.data / file)
        sample, more = (set(sample_ids(data, n, self.seed)) for n in (self.limit, 2 * self.limit))
        items = [item for item in data.items if item.id in sample | more]
        texts = dict.fromkeys(text for item in items for text in item.passages)
        if texts:
            name = f"{data.name}-{self.limit}-{self.seed}"
            folder = self.hub.home / "corpora" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "passages.txt").write_text("\n\n".join(texts), encoding="utf-8")
            yield self._card(name, folder, f"passages of {data.name}")

    def _card(self, name: str, corpus: Path, description: str) -> str:
        if name not in self.hub:
            folder = self.hub.home / "made" / name
            kcard.train(
                corpus, kind="retrieval", name=name, description=description, output=folder, exam=False
            )
            self.hub.publish(folder)
        return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="folder with the data files")
    parser.add_argument("--home", type=Path, help="folder for cards and runs (default: a temporary one)")
    parser.add_argument("--limit", type=int, default=20, help="questions of each task")
    parser.add_argument("--served", type=int, default=10, help="questions through the server; 0 skips it")
    parser.add_argument("--settings", default=SETTINGS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write tables and plots into docs/evaluation.md")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON lines at the end")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        hub = Hub(args.home or Path(scratch))
        started = time.monotonic()
        there = [(task, file) for task, file in FILES if (args.path / file).exists()]
        bench = Bench(hub, args.path, args.limit, args.seed)
        rows = [row for task, file in there for row in bench.measure(task, file, args.settings)]
        through = through_a_server(Bench(hub, args.path, args.served, args.seed), Path(scratch))
        seconds = time.monotonic() - started
    missing = sorted(set(task_names()) - {task for task, _ in there} - {"jsonl"})
    print(f"{seconds / 60:.1f} minutes; not in {args.path}: {', '.join(missing) or 'nothing'}")
    if args.json:
        for measured in (*rows, *through):
            print(json.dumps(measured.row.to_json(0)))
    if args.write:
        write_page(ROOT / "docs", rows, through, missing, seconds)


def through_a_server(bench: Bench, scratch: Path) -> Sequence[Measured]:
    """An open task and one with options, answered by a model behind a server process."""
    files = [file for file in THROUGH_A_SERVER if (bench.data / file).exists()]
    if not files or not bench.limit:
        return []
    with served(WEIGHTS, scratch / "server.log") as url:
        return [
            row
            for file in files
            for row in bench.measure(
                "midterm",
                file,
                SERVED,
                llm=f"openai-completions:{WEIGHTS}",
                llm_url=url,
                llm_window=POSITIONS,
                shots=2,
                concurrency=1,
            )
        ]


if __name__ == "__main__":
    main()
