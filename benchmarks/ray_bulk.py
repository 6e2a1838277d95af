"""Pieces a second on a Ray cluster of one and two workers, beside the same work without Ray.

    python -m benchmarks.ray_bulk --path squad-dev.jsonl.gz [--articles 6] [--questions 192]

Three kinds of work: pieces that do nothing, which is what a piece costs; questions in batches of 16 about a card of
SQuAD's first articles; and a card of each article, trained for one epoch. Ray's workers are processes of this machine,
with a core each; starting them and loading models counts, starting Ray does not.
"""

import argparse
import gzip
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import kcard
from kcard.bulk.children import ChildProcesses
from kcard.bulk.options import RayOptions
from kcard.bulk.piece import Mapper, Piece
from kcard.bulk.ray_cluster import ray_cluster
from kcard.config import without_usage_statistics
from kcard.integrators.batch import answer_file, read_questions

OBJECTS = 80 << 20
CLUSTER = RayOptions(ray="auto")
ASKED: dict[str, Any] = {"mode": "bottom-up", "cards": "squad"}
TRAINED: dict[str, Any] = {"kind": "model", "epochs": 1, "exam": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--articles", type=int, default=6)
    parser.add_argument("--questions", type=int, default=192)
    parser.add_argument("--pieces", type=int, default=200, help="that do nothing; a tenth in child processes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["KCARD_HOME"] = str(Path(scratch) / "home")
        corpora, questions = _written(args.path, Path(scratch), args.articles, args.questions)
        shared = kcard.train(corpora, name="squad", kind="retrieval")
        kcard.publish(shared)
        rows = {"without Ray": _without(corpora, questions, args.pieces // 10)}
        for workers in (1, 2):
            with _ray(workers):
                rows[f"Ray, {workers} worker{'s'[: workers - 1]}"] = _with(corpora, questions, args.pieces)
    print("| | empty pieces/s | questions/s | cards/minute |\n|---|---|---|---|")
    for name, found in rows.items():
        print(f"| {name} | {found[0]:.1f} | {found[1]:.1f} | {60 * found[2]:.1f} |")


def _without(corpora: Path, questions: Path, pieces: int) -> tuple[float, float, float]:
    rows, count = read_questions(questions), len([*corpora.iterdir()])
    return (
        _rate(pieces, lambda: _nothing(ChildProcesses(), pieces)),
        _rate(len(rows), lambda: _asked_here(questions)),
        _rate(count, lambda: kcard.train_many(corpora, output=corpora.parent / "here", **TRAINED)),
    )


def _with(corpora: Path, questions: Path, pieces: int) -> tuple[float, float, float]:
    rows, count = read_questions(questions), len([*corpora.iterdir()])
    with tempfile.TemporaryDirectory() as folder, ray_cluster(CLUSTER, 0, reuse=True) as mapper:
        out = Path(folder)
        return (
            _rate(pieces, lambda: _nothing(mapper, pieces)),
            _rate(
                len(rows),
                lambda: kcard.ask_on_cluster(questions, out / "answers.jsonl", cluster=CLUSTER, **ASKED),
            ),
            _rate(count, lambda: kcard.train_many(corpora, output=out / "cards", cluster=CLUSTER, **TRAINED)),
        )


def _rate(count: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def _nothing(mapper: Mapper, count: int) -> None:
    outcomes = [*mapper.map([Piece(str(n), "kcard.sizes:parse_size", {"text": "2GB"}) for n in range(count)])]
    assert not any(outcome.error for outcome in outcomes), outcomes[0]


def _asked_here(questions: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pipeline = kcard.Pipeline(**ASKED)
        answer_file(read_questions(questions), Path(folder) / "answers.jsonl", pipeline.outcomes)


@contextmanager
def _ray(workers: int) -> Iterator[None]:
    without_usage_statistics()
    import ray

    ray.init(
        "local",
        num_cpus=workers,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=OBJECTS,
    )
    try:
        yield
    finally:
        ray.shutdown()


def _written(path: Path, scratch: Path, articles: int, count: int) -> tuple[Path, Path]:
    """A folder with a corpus for each article, and a file of questions about all of them."""
    passages: Mapping[str, dict[str, None]] = defaultdict(dict)
    asked = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["title"] not in passages and len(passages) == articles:
                break
            passages[row["title"]][row["context"]] = None
            asked += [json.dumps({"question": each["question"]}) + "\n" for each in row["questions"]]
    for number, texts in enumerate(passages.values()):
        folder = scratch / "corpora" / f"article-{number}"
        folder.mkdir(parents=True)
        (folder / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    questions = scratch / "questions.jsonl"
    questions.write_text("".join(islice(asked, count)), encoding="utf-8")
    return scratch / "corpora", questions


if __name__ == "__main__":
    main()
