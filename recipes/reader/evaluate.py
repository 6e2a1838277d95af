"""Measure the reader on what was held out: python -m recipes.reader.evaluate --data DATA --packages DIR

`--weights` takes another folder than the shipped one. Prints the table of weights/README.md.
"""

import argparse
from pathlib import Path

from kcard.embedded.reader import READER_WEIGHTS, load_reader
from recipes.reader import datasets, own, wikipedia
from recipes.reader.record import table
from recipes.reader.score import figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with reading/ and questions/")
    parser.add_argument("--packages", type=Path, required=True, help="folder of unpacked packages")
    parser.add_argument("--weights", type=Path, default=READER_WEIGHTS)
    options = parser.parse_args()
    network = load_reader(options.weights)
    held_out = {
        "SQuAD": wikipedia.squad(options.data)[1],
        "NQ": wikipedia.natural_questions(options.data)[1],
        "manuals": own.readings(options.packages)[1],
        **datasets.held_out(options.data),
    }
    print(table({name: figures(network, readings) for name, readings in held_out.items()}))


if __name__ == "__main__":
    main()
