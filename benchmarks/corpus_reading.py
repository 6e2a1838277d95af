"""How fast a corpus is read, in MB of its files a second, with one reader and with several.

    python -m benchmarks.corpus_reading --path DATA --readers 1 2

passages    reading the files, making passages, finding duplicates
documents   the same with whole documents, for objective clm
statements  cutting passages into what objective recite learns
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

from kcard.training.corpus import read_corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--path", type=Path, required=True, help="a file or folder of text")
    parser.add_argument("--readers", type=int, nargs="+", default=[1])
    given = parser.parse_args()
    files = [given.path] if given.path.is_file() else [*given.path.rglob("*")]
    size = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
    sums = set()
    for readers in given.readers:
        begun = time.monotonic()
        corpus = read_corpus(given.path, readers=readers)
        read = time.monotonic()
        count = len(corpus.statements)
        cut = time.monotonic()
        read_corpus(given.path, whole=True, readers=readers)
        row = {
            "readers": readers,
            "MB": round(size, 1),
            "passages": len(corpus.passages),
            "passages MB/s": round(size / (read - begun), 2),
            "statements": count,
            "statements MB/s": round(size / (cut - read), 2),
            "documents MB/s": round(size / (time.monotonic() - cut), 2),
            "peak memory MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        print(json.dumps(row), flush=True)
        sums.add((corpus.sha256, count))
    if len(sums) > 1:
        sys.exit("the readers read different corpora")


if __name__ == "__main__":
    main()
