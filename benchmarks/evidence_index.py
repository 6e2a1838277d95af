"""Cost of the index of a local corpus: building, opening, updating and searching it, against bm25s in memory.

    python -m benchmarks.evidence_index --passages 10000 --passages 100000

Passages are synthetic: sentences of 20 words with frequencies proportional to 1/rank, 1,000 per file. The update
changes one file. Times are CPU seconds; searching is the median over questions of 8 words; resident memory is the
additional memory of a process that opens and searches the corpus; bytes are the size of the index on disk, with
passages. In memory: bm25s over the same words, built from the texts each time.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kcard.index import Index
from kcard.selectors.local_corpus import LocalCorpus
from kcard.training.corpus import CorpusFiles

IN_A_FILE = 1000
VOCABULARY = 50_000
WORDS = 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", type=int, action="append", help="how many (repeatable; 10000)")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--ask", nargs=2, metavar=("CORPUS", "INDEX"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ask:
        ask(Path(args.ask[0]), Path(args.ask[1]))
        return
    for count in args.passages or [10_000]:
        with tempfile.TemporaryDirectory() as scratch:
            print(json.dumps(measured(Path(scratch), count, args.questions)), flush=True)


def measured(scratch: Path, count: int, questions: int) -> dict[str, Any]:
    corpus, folder = scratch / "corpus", scratch / "index"
    draw = random.Random(0)
    weights = [1 / rank for rank in range(1, VOCABULARY + 1)]
    vocabulary = [f"word{n}" for n in range(VOCABULARY)]

    def sentences(number: int) -> list[str]:
        words = draw.choices(vocabulary, weights, k=WORDS * number)
        return [" ".join(words[i : i + WORDS]).capitalize() + "." for i in range(0, len(words), WORDS)]

    corpus.mkdir()
    texts = sentences(count)
    for start in range(0, count, IN_A_FILE):
        lines = "\n".join(texts[start : start + IN_A_FILE])
        (corpus / f"{start:09}.txt").write_text(lines + "\n", encoding="utf-8")
    claims = [" ".join(draw.choices(vocabulary, weights, k=8)) for _ in range(questions)]

    def opened() -> LocalCorpus:
        return LocalCorpus.open(CorpusFiles(corpus), folder, "corpus")

    opening, evidence = timed(opened)
    again, _ = timed(opened)
    on_disk = asking(lambda claim: evidence.find(claim, 3), claims)
    in_memory, index = timed(lambda: Index.build(texts))
    memory = asking(lambda claim: index.search(claim, 3), claims)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    used = resident(corpus, folder) - resident(None, folder)
    (corpus / f"{0:09}.txt").write_text("\n".join(sentences(IN_A_FILE)) + "\n", encoding="utf-8")
    updated, _ = timed(opened)
    return {
        "passages": count,
        "corpus_mb": round(sum(map(len, texts)) / 1e6, 1),
        "index_mb": round(size / 1e6, 1),
        "made_s": round(opening, 2),
        "opened_s": round(again, 3),
        "updated_s": round(updated, 2),
        "asked_ms": on_disk,
        "resident_mb": round(used / 1e6, 1),
        "in_memory_made_s": round(in_memory, 2),
        "in_memory_asked_ms": memory,
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, which other work on the machine hardly changes, and what came of it."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def asking(find: Callable[[str], object], claims: list[str]) -> float:
    """Median milliseconds a question."""
    return round(statistics.median(timed(partial(find, claim))[0] for claim in claims) * 1000, 2)


def resident(corpus: Path | None, folder: Path) -> int:
    """Bytes that a process has resident that opened the corpus and asked it; of none: that imported the same."""
    command = [sys.executable, "-m", "benchmarks.evidence_index", "--ask", str(corpus or ""), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout)


def ask(corpus: Path, folder: Path) -> None:
    Index.build(["warm"]).search("warm", 1)
    if corpus.name:
        LocalCorpus.open(CorpusFiles(corpus), folder, "corpus").find("word1 word20 word300 word4000", 3)
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    print(pages * os.sysconf("SC_PAGE_SIZE"))


if __name__ == "__main__":
    main()
