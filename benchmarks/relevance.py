"""Which text relevance puts first: the cosine alone, and the cosine with numbers minded.

    python benchmarks/relevance.py --xquad xquad-en-dev.json --midterm MidtermQA-openbook.json

XQuAD: human questions, the paragraph of each among all. MidtermQA: a statement about the right race among the demo's
statements of 2022 and those of elections in other years (corpora/elections.tsv), in other words than the questions.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kcard import encoder
from kcard.numbers import agreement, numbers

HERE = Path(__file__).resolve().parent
FORMS = (
    "{winner} won the {office} race in {state} in {year}.",
    "{state} elected {winner} ({office}) in {year}.",
)
Set = tuple[list[str], list[str], list[set[int]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--xquad", type=Path, required=True)
    parser.add_argument("--midterm", type=Path, required=True)
    args = parser.parse_args()
    print("| set | questions | cosine | with numbers | questions with a number | cosine | with numbers |")
    print("|---|---|---|---|---|---|---|")
    for name, (questions, texts, right) in {
        "XQuAD": xquad(args.xquad),
        "MidtermQA and other years": midterms(args.midterm),
    }.items():
        cosines = encoder.embed(questions) @ encoder.embed(texts).T
        agreed = np.array([[agreement(q, t) for t in texts] for q in questions], dtype=np.float32)
        numbered = [i for i, q in enumerate(questions) if numbers(q)]
        rows = []
        for chosen in (range(len(questions)), numbered):
            rows += [
                str(len(chosen)),
                first(cosines, right, chosen),
                first(cosines * agreed, right, chosen),
            ]
        print(f"| {name} | {' | '.join(rows)} |")


def first(scores: np.ndarray, right: Sequence[set[int]], chosen: Sequence[int]) -> str:
    """The share of the chosen questions whose best text is a right one."""
    return f"{np.mean([int(scores[i].argmax()) in right[i] for i in chosen]):.3f}"


def xquad(path: Path) -> Set:
    questions: list[str] = []
    texts: list[str] = []
    right: list[set[int]] = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            texts.append(paragraph["context"])
            for asked in paragraph["qas"]:
                questions.append(asked["question"])
                right.append({len(texts) - 1})
    return questions, texts, right


def midterms(path: Path) -> Set:
    corpus = HERE.parent / "demo" / "corpora" / "midterms-2022"
    texts = [line for file in sorted(corpus.glob("*.txt")) for line in file.read_text("utf-8").splitlines()]
    count = len(texts)
    with (HERE / "corpora" / "elections.tsv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            texts += [form.format(**row) for form in FORMS]
    rows = json.loads(path.read_text(encoding="utf-8"))["testset"]
    right = [{i for i in range(count) if row["answer"] in texts[i]} for row in rows]
    return [row["question"] for row in rows], texts, right


if __name__ == "__main__":
    main()
