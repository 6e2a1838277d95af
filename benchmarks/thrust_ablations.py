"""The rows of Thrust's table 5 on real questions: python benchmarks/thrust_ablations.py --path FOLDER [--json]

The answering model, whose vectors Thrust uses, is the embedded sentence encoder: it chooses the option nearest to the
question, or the class with the nearest demonstrations. FOLDER contains MidtermQA-binary.json,
MidtermQA-fourchoice.json, LUN2.json, LUN4.json, mmlu_redux-dev.json and truthfulqa-dev.json. Other data sets and models
are given as records: --records popqa=popqa.jsonl.

In each of several draws, a sample of 200 (half of a smaller set) fits the gate, and the other questions are scored:

    AUROC         of the score for correct against wrong answers; 0.5 for an uninformative score
    correlation   of the sets' median scores with their accuracies (Spearman), similar to the paper's measure
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kcard.embedded import minilm
from kcard.gates.base import Resources, find
from kcard.gates.features import CachedRepresentation, MiniLMRepresentation
from kcard.gates.records import Record, read_records

SAMPLE, LIMIT, DRAWS = 200, 700, 5
GATES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "thrust": ("thrust", {}),
    "without cluster size": ("thrust", {"variant": "without-size"}),
    "without direction": ("thrust", {"variant": "without-direction"}),
    "without distance": ("thrust", {"variant": "without-distance"}),
    "cosine distance": ("thrust", {"variant": "cosine-distance"}),
    "one cluster per label class": ("thrust", {"clusters": 1}),
    "ten clusters per label class": ("thrust", {"clusters": 10}),
    "cluster size to inertia": ("thrust", {"variant": "inertia"}),
    "bm25": ("bm25", {}),
    "random": ("random", {}),
}
CHOICE = re.compile(r"(?:^|\s)([A-D])\. ")
T = TypeVar("T")
Numbers = npt.NDArray[np.float64]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--path", type=Path, help="folder of the sets that are named above")
    arguments.add_argument("--records", nargs="*", default=[], metavar="NAME=FILE")
    arguments.add_argument("--limit", type=int, default=LIMIT, help="most questions of a set")
    arguments.add_argument("--draws", type=int, default=DRAWS)
    arguments.add_argument("--json", action="store_true")
    args = arguments.parse_args()
    sets = choice_sets(args.path, args.limit) if args.path else {}
    for named in args.records:
        name, _, path = named.partition("=")
        sets[name] = drawn(read_records(path), args.limit, 0)
    figures = measured(sets, args.draws)
    print(json.dumps(figures) if args.json else table(figures))


def choice_sets(folder: Path, limit: int) -> dict[str, list[Record]]:
    """Each set, answered by the encoder."""

    def data(name: str) -> Any:
        return json.loads((folder / name).read_text(encoding="utf-8"))

    sets = {}
    for name in ("binary", "fourchoice"):
        rows = [lettered(row) for row in data(f"MidtermQA-{name}.json")["testset"]]
        sets[f"midterm-{name}"] = [by_choice(row) for row in drawn(rows, limit, 0)]
    for name in ("mmlu_redux", "truthfulqa"):
        sets[name] = [by_choice(row) for row in drawn(data(f"{name}-dev.json")["rows"], limit, 0)]
    for name in ("LUN2", "LUN4"):
        read = data(f"{name}.json")
        sets[name.lower()] = by_demonstration(read["demos"], drawn(read["testset"], limit, 0))
    return sets


def drawn(rows: Sequence[T], limit: int, seed: int) -> list[T]:
    return [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))[:limit]]


def lettered(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A question whose choices follow it on the next line, taken apart."""
    question, _, line = row["question"].rpartition("\n")
    parts = [part.strip() for part in CHOICE.split(line)[1:]]
    choices = dict(zip(parts[::2], parts[1::2], strict=True))
    return {"question": question, "choices": choices, "answer": row["answer"]}


def by_choice(row: Mapping[str, Any]) -> Record:
    """The choice nearest to the question is the answer; the letter of the right one is the class."""
    letters, texts = list(row["choices"]), list(row["choices"].values())
    near = minilm.embed(texts) @ minilm.embed([row["question"]])[0]
    right = float(letters[int(near.argmax())] == row["answer"])
    return Record(row["question"], right, right, label=row["answer"])


def by_demonstration(demos: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, str]]) -> list[Record]:
    """The class whose demonstrations have the nearest mean is the answer."""
    labels = sorted({demo["label"] for demo in demos})
    means = [minilm.embed([d["text"] for d in demos if d["label"] == label]).mean(axis=0) for label in labels]
    near = minilm.embed([row["text"] for row in rows]) @ np.stack(means).T
    right = [float(labels[best] == row["label"]) for best, row in zip(near.argmax(axis=1), rows, strict=True)]
    return [Record(row["text"], x, x, label=row["label"]) for row, x in zip(rows, right, strict=True)]


def measured(sets: Mapping[str, Sequence[Record]], draws: int) -> dict[str, Any]:
    """For each gate its AUROC on each set, mean and spread over draws, and the correlation over the sets."""
    resources = Resources(representation=CachedRepresentation(MiniLMRepresentation()))
    accuracy = {name: float(np.mean([r.correct_without for r in records])) for name, records in sets.items()}
    gates: dict[str, Any] = {}
    for gate, (kind, settings) in GATES.items():
        areas: dict[str, list[float]] = {name: [] for name in sets}
        correlations = []
        for draw in range(draws):
            medians = []
            for name, records in sets.items():
                shuffled = drawn(records, len(records), draw)
                cut = min(SAMPLE, len(records) // 2)
                fitted = find(kind).fit(shuffled[:cut], settings, resources)
                scores = fitted.scores([record.query for record in shuffled[cut:]]).astype(np.float64)
                right = np.array([record.correct_without for record in shuffled[cut:]])
                areas[name].append(auroc(scores, right >= 0.5))
                medians.append(float(np.median(scores)))
            if len(sets) > 2:
                correlations.append(spearman(medians, list(accuracy.values())))
        gates[gate] = {"auroc": {name: spread(found) for name, found in areas.items()}}
        gates[gate]["mean_auroc"] = spread(np.mean([*areas.values()], axis=0))
        gates[gate]["correlation"] = spread(correlations)
    return {
        "draws": draws,
        "accuracy": accuracy,
        "sizes": {n: len(r) for n, r in sets.items()},
        "gates": gates,
    }


def spread(values: Sequence[float] | Numbers) -> list[float] | None:
    """Mean and standard deviation; None where there are none."""
    if not len(values) or np.isnan(values).any():
        return None
    return [round(float(np.mean(values)), 4), round(float(np.std(values)), 4)]


def ranks(values: Sequence[float] | Numbers) -> Numbers:
    """From 1 on; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which])


def auroc(scores: Numbers, right: npt.NDArray[np.bool_]) -> float:
    """The share of pairs of a right and a wrong answer in which the right one scores higher; NaN without a pair."""
    positive, negative = int(right.sum()), int((~right).sum())
    if not positive or not negative:
        return float("nan")
    return float((ranks(scores)[right].sum() - positive * (positive + 1) / 2) / (positive * negative))


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def table(figures: Mapping[str, Any]) -> str:
    names = list(figures["accuracy"])
    lines = [
        ["", *names, "mean", "correlation"],
        ["accuracy", *(f"{share:.2f}" for share in figures["accuracy"].values())],
    ]
    for gate, scores in figures["gates"].items():
        cells = [*(scores["auroc"][name] for name in names), scores["mean_auroc"], scores["correlation"]]
        lines.append([gate, *map(shown, cells)])
    return "\n".join(" | ".join(line) for line in lines)


def shown(value: Sequence[float] | None) -> str:
    return f"{value[0]:.2f}±{value[1]:.2f}" if value else "-"


if __name__ == "__main__":
    main()
