"""Measure the offline fact checker on texts that it was not trained on.

    python -m recipes.checker.evaluate --path FACT_CHECK_DIR [--midterm MidtermQA-openbook.json]

Prints Markdown tables: area under the curve and balanced accuracy of the whole checker and of its network
alone, the probes of elections.py, and speed on one core.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcard.protocols import Array, Pair
from kcard.selectors.checker import WEIGHTS, MiniLMChecker
from recipes.checker.elections import TRUE, probes
from recipes.checker.rows import SUPPORTS, Row, read

Flags = npt.NDArray[np.bool_]
FILES = ("validation.jsonl", "test-fever_symmetric.jsonl", "test-vitaminc_synthetic.jsonl.gz")


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="folder with the validation and test files")
    parser.add_argument("--midterm", type=Path, help="MidtermQA-openbook.json")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--threshold", type=float, default=0.5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    checker = MiniLMChecker(weights=options.weights)
    _files(checker, options.path, options.threshold)
    if options.midterm:
        _elections(checker, options.midterm, options.threshold)


def _files(checker: MiniLMChecker, folder: Path, threshold: float) -> None:
    print(f"| file | rows | AUC | balanced accuracy at {threshold} | network alone: AUC | pairs/s |")
    print("|---|---|---|---|---|---|")
    for name in FILES:
        rows = read(folder / name)
        pairs, truth = [Pair(r.claim, r.evidence) for r in rows], _truth(rows)
        start = time.process_time()
        scores = checker.support(pairs)
        speed = len(rows) / (time.process_time() - start)
        alone = checker.read(pairs)
        print(
            f"| {name} | {len(rows)} | {auc(truth, scores):.3f} | {balanced(truth, scores >= threshold):.3f} "
            f"| {auc(truth, alone):.3f} | {speed:.0f} |",
            flush=True,
        )


def _elections(checker: MiniLMChecker, path: Path, threshold: float) -> None:
    print("\n| probe | right | mean score |\n|---|---|---|")
    scores = {kind: checker.support(pairs) for kind, pairs in probes(path, 200).items()}
    for kind, found in scores.items():
        right = found >= threshold if kind in TRUE else found < threshold
        print(f"| {kind} | {right.mean():.3f} | {found.mean():.3f} |")
    values = np.concatenate(list(scores.values()))
    truth = np.concatenate([np.full(len(found), kind in TRUE) for kind, found in scores.items()])
    print(f"\nAUC over all probes {auc(truth, values):.3f}")


def _truth(rows: Sequence[Row]) -> Flags:
    return np.array([row.label == SUPPORTS for row in rows])


def auc(truth: Flags, scores: Array) -> float:
    """Area under the ROC curve: how often a supported pair scores above one that is not; ties count half."""
    order = np.sort(scores[~truth])
    below = np.searchsorted(order, scores[truth], side="left")
    up_to = np.searchsorted(order, scores[truth], side="right")
    return float(((below + up_to) / 2).mean() / len(order))


def balanced(truth: Flags, said: Flags) -> float:
    """Mean of the shares of both classes that were judged right."""
    return float((said[truth].mean() + (~said[~truth]).mean()) / 2)


if __name__ == "__main__":
    main()
