"""Accuracy and speed of fact checkers, in two tables.

    python -m benchmarks.checkers --path FACT_CHECK_DIR --midterm MidtermQA-openbook.json \
        --checker overlap --checker cosine --checker minilm

The first table: labelled sets that no checker was trained on, supported claims against all others. The threshold is
chosen on validation.jsonl; for its own row, on the other half of its claims. "In long texts": 500 of its rows, with the
evidence between 16 other texts, about 450 words in all. The second table: probes about the 2022 midterm elections
(recipes/checker/elections.py) and about who did what to whom (roles.toml): the share of true claims accepted and of
altered claims rejected. `--checker` takes the names of `kcard check --checker`; models of a hub need the network.
`overlap` is the share of the claim's words in the text, `cosine` the cosine of MiniLM's embeddings.
"""

import argparse
import json
import sys
import time
import tomllib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
from recipes.checker.elections import TRUE, probes
from recipes.checker.rows import SUPPORTS, Row, read

from kcard.embedded import minilm
from kcard.interfaces import Array, Checker, Pair
from kcard.selectors.registry import Loading, make
from kcard.text import words

Flags = npt.NDArray[np.bool_]
VALIDATION = "validation.jsonl"
FILES = (VALIDATION, "test-fever_symmetric.jsonl", "test-vitaminc_synthetic.jsonl.gz")
LONG, LONG_ROWS, OTHERS = "validation.jsonl in long texts", 500, 16
BUILT_IN = ("overlap", "cosine", "minilm")
ROLES = Path(__file__).parent / "roles.toml"
ENTAILED = (*TRUE, "roles as they are")


class Overlap(Checker):
    """The share of the claim's words that stand in the evidence."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        bags = [(set(words(p.claim)), set(words(p.evidence))) for p in pairs]
        return np.array([len(c & e) / max(1, len(c)) for c, e in bags], dtype=np.float32)


class Cosine(Checker):
    """The cosine of the two embeddings, negative ones as 0."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        claims, texts = minilm.embed([p.claim for p in pairs]), minilm.embed([p.evidence for p in pairs])
        cosines: Array = np.clip((claims * texts).sum(axis=1), 0.0, 1.0)
        return cosines


@dataclass(frozen=True)
class Measured:
    """One checker on one file. `chosen` is the balanced accuracy at `threshold`, that of validation."""

    checker: str
    file: str
    pairs: int
    auc: float
    threshold: float
    chosen: float
    at_half: float
    per_second: float


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="folder with validation and test files")
    parser.add_argument(
        "--midterm", type=Path, help="MidtermQA-openbook.json, for the probes about elections"
    )
    parser.add_argument("--checker", action="append", help="a checker's name; may be given again")
    parser.add_argument("--limit", type=int, help="rows of each file and probes of each kind, at most")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trust-remote-code", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loading = Loading(device=options.device, trust_remote_code=options.trust_remote_code)
    names = options.checker or list(BUILT_IN)
    reports = [_measured(name, _open(name, loading), options) for name in names]
    if options.json:
        print(json.dumps(dict(zip(names, reports, strict=True)), indent=2))
    else:
        _print(names, reports)


def _open(name: str, loading: Loading) -> Checker:
    baselines: dict[str, Checker] = {"overlap": Overlap(), "cosine": Cosine()}
    return baselines.get(name) or make("checker", name, loading)


def _measured(name: str, judge: Checker, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one checker: `files` and `probes`."""
    judge.support([Pair("Oslo is in Norway.", "Lima is in Peru.")])  # loading is not timed
    files, threshold = [], 0.5
    for file, rows in _sets(options.path, options.limit).items():
        truth = np.array([row.label == SUPPORTS for row in rows])
        start = time.process_time()
        scores = judge.support([Pair(row.claim, row.evidence) for row in rows])
        speed = len(rows) / (time.process_time() - start)
        if file == VALIDATION:
            threshold, chosen = best_threshold(truth, scores), crossed(rows, truth, scores)
        else:
            chosen = balanced(truth, scores >= threshold)
        area, half = auc(truth, scores), balanced(truth, scores >= 0.5)
        files.append(vars(Measured(name, file, len(rows), area, threshold, chosen, half, speed)))
        print(f"{name}: {file} {area:.3f}", file=sys.stderr, flush=True)
    shares = {
        kind: _right(judge.support(pairs), kind in ENTAILED, threshold)
        for kind, pairs in _probes(options.midterm, options.limit or 200).items()
    }
    return {"files": files, "probes": shares}


def _right(scores: Array, is_kept: bool, threshold: float) -> dict[str, float]:
    return {
        name: float((scores >= at).mean() if is_kept else (scores < at).mean())
        for name, at in (("chosen", threshold), ("at_half", 0.5))
    }


def _probes(midterm: Path | None, count: int) -> dict[str, list[Pair]]:
    roles = tomllib.loads(ROLES.read_text(encoding="utf-8"))["role"][:count]
    pairs = probes(midterm, count) if midterm else {}
    pairs["roles as they are"] = [Pair(role["true"], role["text"]) for role in roles]
    pairs["roles exchanged"] = [Pair(role["false"], role["text"]) for role in roles]
    return pairs


def _sets(folder: Path, limit: int | None) -> dict[str, list[Row]]:
    sets = {file: read(folder / file) for file in FILES}
    texts = sorted({row.evidence for row in sets[VALIDATION]})
    rng = Random(0)
    sets[LONG] = [_among(row, texts, rng) for row in _some(sets[VALIDATION], LONG_ROWS)]
    return {file: _some(rows, limit) for file, rows in sets.items()}


def _among(row: Row, texts: Sequence[str], rng: Random) -> Row:
    """The row with its evidence between others; no other revision of it is among them."""
    own = set(words(row.evidence))
    others = [t for t in rng.sample(texts, OTHERS + 8) if len(own & set(words(t))) < 0.5 * len(own)][:OTHERS]
    others.insert(rng.randint(0, len(others)), row.evidence)
    return Row(row.claim, "\n".join(others), row.label)


def _some(rows: list[Row], limit: int | None) -> list[Row]:
    return rows if limit is None or limit >= len(rows) else Random(0).sample(rows, limit)


def auc(truth: Flags, scores: Array) -> float:
    """Area under the ROC curve: how often a supported pair scores above one that is not; ties count half."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, scores))


def balanced(truth: Flags, predicted: Flags) -> float:
    """Mean of the shares of both classes that were judged right."""
    return float((predicted[truth].mean() + (~predicted[~truth]).mean()) / 2)


def best_threshold(truth: Flags, scores: Array) -> float:
    """The threshold (score >= it: supported) of the highest balanced accuracy."""
    from sklearn.metrics import roc_curve

    false, true, thresholds = roc_curve(truth, scores)
    return float(thresholds[int(np.argmax(true - false))])


def crossed(rows: Sequence[Row], truth: Flags, scores: Array) -> float:
    """Balanced accuracy where each half of the claims is judged by the other half's threshold."""
    half = np.array([zlib.crc32(row.claim.encode()) % 2 == 0 for row in rows])
    predicted = np.where(
        half,
        scores >= best_threshold(truth[~half], scores[~half]),
        scores >= best_threshold(truth[half], scores[half]),
    )
    return balanced(truth, predicted)


def _print(names: Sequence[str], reports: Sequence[dict[str, Any]]) -> None:
    print("| file | pairs | checker | AUC | balanced accuracy | at 0.5 | threshold | pairs/s |")
    print("|---|---|---|---|---|---|---|---|")
    for i in range(len(reports[0]["files"])):
        for figures in reports:
            m = Measured(**figures["files"][i])
            print(
                f"| {m.file} | {m.pairs} | {m.checker} | {m.auc:.3f} | {m.chosen:.3f} | {m.at_half:.3f} "
                f"| {m.threshold:.2f} | {m.per_second:.0f} |"
            )
    print(f"\n| probe | | {' | '.join(f'{name}, at 0.5' for name in names)} |")
    print("|---|---|" + "---|" * len(names))
    for kind in reports[0]["probes"]:
        shares = [figures["probes"][kind] for figures in reports]
        cells = " | ".join(f"{share['chosen']:.3f}, {share['at_half']:.3f}" for share in shares)
        print(f"| {kind} | {'kept' if kind in ENTAILED else 'caught'} | {cells} |")


if __name__ == "__main__":
    main()
