"""What rounding the vectors of a corpus to bytes costs: recall of the right passage, space, and time of a question.

    python -m benchmarks.dense_retrieval --path questions/ --passages 4000 --questions 400

PATH: a folder of .jsonl.gz with lines of {question, context}; the passages are distinct contexts, and the right passage
of a question is its own. The encoder is the embedded one; times are medians of a question, and of one in a batch of 64.
"""

import argparse
import gzip
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

from kcard.gates.features import find
from kcard.selectors.dense import DenseCorpus, Int8Vectors
from kcard.types import Source

RANKS = (1, 3, 10)
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--passages", type=int, default=4000)
    parser.add_argument("--questions", type=int, default=400)
    args = parser.parse_args()
    passages: dict[str, int] = {}
    asked: list[tuple[str, int]] = []
    for file in sorted(args.path.glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as stream:
            for line in stream:
                row = json.loads(line)
                if row.get("type") == "none" or row["context"] in passages:
                    continue
                if len(passages) < args.passages:
                    passages[row["context"]] = len(passages)
                    asked.append((row["question"], passages[row["context"]]))
    asked = asked[:: max(1, len(asked) // args.questions)][: args.questions]
    encoder, sources = find("minilm"), [Source(text) for text in passages]
    with tempfile.TemporaryDirectory() as home:
        os.environ["KCARD_HOME"] = home
        for name, exact in (("exact", len(sources)), ("bytes", 0)):
            begun = time.process_time()
            corpus = DenseCorpus(sources, encoder.vectors, encoder.digest, exact=exact)
            built = time.process_time() - begun
            texts = [question for question, _ in asked]
            corpus.find_all(texts, 1)  # the questions' vectors are in the cache now
            seconds, found = [], []
            for text in texts:
                begun = time.perf_counter()
                found.append([passages[source.text] for source in corpus.find(text, max(RANKS))])
                seconds.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            corpus.find_all(texts[:BATCH], 1)
            batch = (time.perf_counter() - begun) / min(BATCH, len(texts))
            vectors = corpus._vectors
            size = (
                vectors.codes.nbytes + vectors.scales.nbytes
                if isinstance(vectors, Int8Vectors)
                else vectors.nbytes
            )
            recall = {
                f"recall@{k}": round(
                    statistics.fmean(
                        right in rows[:k] for (_, right), rows in zip(asked, found, strict=True)
                    ),
                    4,
                )
                for k in RANKS
            }
            figures = {
                "vectors": name,
                "passages": len(sources),
                "questions": len(asked),
                **recall,
                "MB": round(size / 1e6, 2),
                "built, CPU s": round(built, 1),
                "ms a question": round(1000 * statistics.median(seconds), 2),
                "ms in a batch": round(1000 * batch, 2),
            }
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
