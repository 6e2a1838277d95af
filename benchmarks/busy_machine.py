"""What `kcard ask --input` takes on a machine whose cores other processes use.

    python -m benchmarks.busy_machine --path squad-dev.jsonl.gz [--questions 24] [--others 2]

A retrieval card of one SQuAD article is asked people's questions, with as many endless loops beside it as there are
cores: with kcard's own settings, with OpenMP threads that spin while they wait (OMP_WAIT_POLICY=ACTIVE, what torch
does by itself), and with one thread. Medians of the runs, which take turns.
"""

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import kcard
from kcard.machine import cores

WAYS: Mapping[str, Mapping[str, str]] = {
    "kcard's settings": {},
    "threads that spin": {"OMP_WAIT_POLICY": "ACTIVE"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--questions", type=int, default=24)
    parser.add_argument("--others", type=int, default=cores(), help="processes that use the cores too")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    os.environ.pop("OMP_WAIT_POLICY", None)
    with tempfile.TemporaryDirectory() as scratch, _busy(args.others):
        home = Path(scratch)
        questions = _published(args.path, home, args.questions)
        found = defaultdict(list)
        for _ in range(args.runs):
            for name, setting in WAYS.items():
                found[name].append(_asked(questions, home, setting))
    print("| threads | wall s | CPU s |\n|---|---|---|")
    for name, taken in found.items():
        wall, cpu = (statistics.median(values) for values in zip(*taken, strict=True))
        print(f"| {name} | {wall:.1f} | {cpu:.1f} |")


@contextmanager
def _busy(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()


def _published(path: Path, home: Path, count: int) -> Path:
    """Publish a card of the first article; the file of questions about it."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if row["title"] == rows[0]["title"]]
    corpus, questions = home / "article.txt", home / "questions.jsonl"
    corpus.write_text("\n\n".join(row["context"] for row in rows), encoding="utf-8")
    asked = [q["question"] for row in rows for q in row["questions"]][:count]
    questions.write_text("".join(json.dumps({"question": q}) + "\n" for q in asked), encoding="utf-8")
    os.environ["KCARD_HOME"] = str(home)
    kcard.publish(kcard.train(corpus, kind="retrieval", name="article", description="one article"))
    return questions


def _asked(questions: Path, home: Path, setting: Mapping[str, str]) -> tuple[float, float]:
    """(wall, CPU) seconds."""
    output = home / "answers.jsonl"
    output.unlink(missing_ok=True)
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "kcard", "ask", "--input", str(questions), "--output", str(output)]
    subprocess.run(command, check=True, env={**os.environ, **setting}, capture_output=True)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
