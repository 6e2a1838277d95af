"""Accuracy of recognising a question's relation, with names masked and unmasked (as in lower-case questions).

    python -m benchmarks.gate_relations --path DATA [--limit N]

DATA contains popqa-dev.json, whose questions are made from one template per relation, so the truth is known.
"Templates": prototypes are the sixteen templates; "records": prototypes are the means of 200 questions by relation,
tested on the others.
"""

import argparse
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kcard.gates.features import CachedRepresentation, MiniLMRepresentation
from kcard.gates.popularity import BUILT_IN, SLOT, mask_names
from kcard.interfaces import Array

FITTED = 200
Form = Callable[[str], str]
FORMS: dict[str, Form] = {"mask_names": mask_names, "as it is": str}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=1000)
    options = parser.parse_args()
    rows = json.loads((options.path / "popqa-dev.json").read_text(encoding="utf-8"))["rows"]
    questions = [row["input"] for row in rows[: options.limit]]
    templates: dict[str, str] = json.loads(BUILT_IN.read_text(encoding="utf-8"))
    truth = [_relation(question, templates) for question in questions]
    random.Random(0).shuffle(order := list(range(len(questions))))
    fitted, held_out = order[:FITTED], order[FITTED:]
    encoder = CachedRepresentation(MiniLMRepresentation())
    print("| question | templates | records |\n|---|---|---|")
    for name, form in FORMS.items():
        vectors = encoder.vectors([form(question) for question in questions])
        prototypes = encoder.vectors([question.replace("{}", SLOT) for question in templates.values()])
        by_template = _share(vectors, prototypes, list(templates), truth)
        relations = sorted({truth[i] for i in fitted})
        means = np.stack([vectors[[i for i in fitted if truth[i] == one]].mean(axis=0) for one in relations])
        by_record = _share(vectors[held_out], means, relations, [truth[i] for i in held_out])
        print(f"| {name} | {by_template:.3f} | {by_record:.3f} |")


def _relation(question: str, templates: dict[str, str]) -> str:
    patterns = {name: "(.+)".join(map(re.escape, text.split("{}"))) for name, text in templates.items()}
    (relation,) = (name for name, pattern in patterns.items() if re.fullmatch(pattern, question))
    return relation


def _share(vectors: Array, prototypes: Array, names: Sequence[str], truth: Sequence[str]) -> float:
    prototypes = prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)
    nearest = (vectors @ prototypes.T).argmax(axis=1)
    return float(np.mean([names[i] == one for i, one in zip(nearest, truth, strict=True)]))


if __name__ == "__main__":
    main()
