"""Measure relevance, pruning and evidence search, which are not trained here.

    python -m recipes.checker.measure --xquad xquad-en-dev.json --path FACT_CHECK_DIR

Relevance: how often the right paragraph of an article is ranked first, and among the first five, for a question.
Pruning: how often the pruned paragraph still contains the answer, and the share of words left. Evidence: how often the
text that supports a claim is found among all texts of the file.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kcard.selectors.evidence import CorpusEvidence
from kcard.selectors.pruning import Extractive
from kcard.selectors.relevance import MiniLMRelevance, top
from kcard.types import Source
from recipes.checker.rows import SUPPORTS, read


@dataclass(frozen=True)
class ParagraphQuestion:
    question: str
    answer: str
    paragraph: int
    article: tuple[str, ...]


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--xquad", type=Path, help="a file in SQuAD layout")
    parser.add_argument(
        "--path", type=Path, help="folder with validation.jsonl and test-fever_symmetric.jsonl"
    )
    parser.add_argument("--every", type=int, default=4, help="take every n-th question")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.xquad:
        questions = list(_read_questions(options.xquad))[:: options.every]
        _relevance(questions)
        _pruning(questions)
    if options.path:
        for name in ("validation.jsonl", "test-fever_symmetric.jsonl"):
            _evidence(options.path / name)


def _read_questions(path: Path) -> Iterator[ParagraphQuestion]:
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        paragraphs = tuple(p["context"] for p in article["paragraphs"])
        for number, paragraph in enumerate(article["paragraphs"]):
            for qa in paragraph["qas"]:
                yield ParagraphQuestion(qa["question"], qa["answers"][0]["text"], number, paragraphs)


def _relevance(questions: list[ParagraphQuestion]) -> None:
    ranks = []
    for a in questions:
        scores = MiniLMRelevance().scores(a.question, a.article)
        ranks.append(top(scores, len(a.article)).index(a.paragraph))
    shares = ", ".join(f"{sum(r < k for r in ranks) / len(ranks):.3f} among {k}" for k in (1, 3, 5))
    print(f"relevance, {len(questions)} questions over the paragraphs of their article: {shares}", flush=True)


def _pruning(questions: list[ParagraphQuestion]) -> None:
    print("| ratio | at most | answer kept | words kept | ms a text |\n|---|---|---|---|---|")
    for pruner in (Extractive(r, m) for r, m in ((0.5, 3), (0.75, 2), (0.75, 3), (0.75, 4), (0.9, 3))):
        start = time.process_time()
        pruned = [pruner.prune(a.question, [a.article[a.paragraph]])[0] for a in questions]
        spent = 1000 * (time.process_time() - start) / len(questions)
        share = sum(a.answer in text for a, text in zip(questions, pruned, strict=True)) / len(questions)
        words = sum(len(t.split()) for t in pruned) / sum(
            len(a.article[a.paragraph].split()) for a in questions
        )
        print(f"| {pruner.ratio} | {pruner.most} | {share:.3f} | {words:.2f} | {spent:.0f} |", flush=True)


def _evidence(path: Path) -> None:
    rows = read(path)
    corpus = CorpusEvidence([Source(text) for text in sorted({row.evidence for row in rows})])
    pairs = [(row.evidence, corpus.find(row.claim, 3)) for row in rows if row.label == SUPPORTS]
    first = sum(found[:1] != [] and found[0].text == text for text, found in pairs) / len(pairs)
    three = sum(text in {source.text for source in found} for text, found in pairs) / len(pairs)
    print(
        f"evidence, {path.name}: {len(pairs)} claims, {len(corpus)} texts: {first:.3f} first, {three:.3f} among 3"
    )


if __name__ == "__main__":
    main()
