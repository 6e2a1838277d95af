"""Which ranking finds the passage that answers: BM25, the encoder's cosine, their ranks joined, or the score of cards.

    python -m benchmarks.ranking --path xquad-en-dev.json [--json]

XQuAD's paragraphs are cut into passages as for a card; its questions are asked. Share of the questions whose answer
stands in the first 1, 2, 3, 5, 10 passages.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recall import Question, holds, rows
from benchmarks.xquad import read
from kcard import encoder
from kcard.cards.kinds.retrieval import LEXICAL
from kcard.index import Index
from kcard.protocols import Array
from kcard.training.corpus import read_corpus

FIRST = (1, 2, 3, 5, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="xquad-en-dev.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    paragraphs, questions = read(args.path)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "paragraphs.txt"
        corpus.write_text("".join(f"{paragraph}\n" for paragraph in paragraphs), encoding="utf-8")
        passages = list(read_corpus(corpus).texts)
    found = compared(passages, questions)
    head = f"{len(passages)} passages, {len(questions)} questions\n\n"
    print(json.dumps(found) if args.json else head + rows(("ranking", *map(str, FIRST)), found))


def compared(passages: list[str], questions: list[Question]) -> list[dict[str, Any]]:
    index = Index.build(passages)
    lexical = bm25(index, questions)
    cosine = encoder.embed([q.text for q in questions]) @ encoder.embed(passages).T
    possible = np.array([[index.best_possible(question.text)] for question in questions])
    joined = LEXICAL * np.minimum(lexical / possible, 1) + (1 - LEXICAL) * cosine
    scores = {
        "BM25": lexical,
        "cosine": cosine,
        "ranks joined, k = 60": 1 / (61 + places(lexical)) + 1 / (61 + places(cosine)),
        "score of cards, over all": joined,
        **{
            f"score of cards, over BM25's {n}": np.where(places(lexical) < n, joined, -9.0)
            for n in (10, 20, 50)
        },
    }
    right = np.array([[holds(passage, question) for passage in passages] for question in questions])
    return [{"ranking": name, **shares(values, right)} for name, values in scores.items()]


def bm25(index: Index, questions: list[Question]) -> Array:
    found = np.zeros((len(questions), len(index)), dtype=np.float32)
    for number, question in enumerate(questions):
        for row, score in index.search(question.text, len(index)):
            found[number, row] = score
    return found


def places(scores: Array) -> Array:
    """The rank of each passage for each question, from 0; of equal scores the earlier passage is first."""
    return np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1).astype(np.float32)


def shares(scores: Array, right: Array) -> dict[str, float]:
    order = np.argsort(-scores, axis=1, kind="stable")[:, : max(FIRST)]
    hits = np.take_along_axis(right, order, axis=1)
    return {str(k): round(float(hits[:, :k].any(axis=1).mean()), 3) for k in FIRST}


if __name__ == "__main__":
    main()
