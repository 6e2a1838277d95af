"""24 SQuAD articles as one corpus: does a card find the passage, and is the answer right, wrong or "I don't know"?

    python -m benchmarks.squad_articles --path squad-dev.jsonl.gz [--kind retrieval both model] [--questions 1000]

The first table ranks passages: the share of questions whose gold sentence is in the first 1, 3 and 10 passages, and the
mean reciprocal rank, compared with BM25 (bm25s) and the plain encoder over the same passages. The second table runs the
pipeline with default options and the embedded LLM: recall (the gold answer is in the LLM's passages), exact match, F1
and share of "I don't know"; and the same without the "I don't know"s. The first 50 questions are asked one by one and
timed.
"""

import argparse
import gzip
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kinds import KINDS, hub_with
from benchmarks.recall import plain
from kcard.batching import batched
from kcard.cards.card import Card
from kcard.cards.passages import passages
from kcard.cards.pool import CardPool
from kcard.embedded import minilm
from kcard.evaluation.metrics import exact_match, f1
from kcard.hub.registry import Hub
from kcard.index import Index
from kcard.integrators.pipeline import Pipeline
from kcard.interfaces import Array
from kcard.llms.embedded_llm import UNKNOWN_ANSWER
from kcard.text import sentence_spans
from kcard.types import Sampling

FIRST = (1, 3, 10)
DEEPEST = 10
TIMED = 50  # questions that are asked one by one
BATCH = 32  # of the others


@dataclass(frozen=True)
class ArticleQuestion:
    """`sentence`: the one that holds the answer, plain."""

    question: str
    answer: str
    sentence: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=["retrieval"])
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--home", type=Path, help="keep the cards here, and use those that are there")
    args = parser.parse_args()
    with gzip.open(args.path, "rt", encoding="utf-8") as lines:
        articles = [json.loads(line) for line in lines]
    sample = random.Random(args.seed).sample(all_questions(articles), args.questions)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = written(articles, Path(scratch) / "corpus")
        home = args.home or Path(scratch) / "home"
        hubs = {kind: hub_with(kind, corpus, "articles", home) for kind in args.kind}
        for kind, hub in hubs.items():
            if kind == "retrieval":
                print(ranking(hub, sample), end="\n\n")
        print("| kind | recall | EM | F1 | don't know | EM of given | F1 of given | s a question |")
        print("|---" * 8 + "|")
        for kind, hub in hubs.items():
            print(f"| {kind} | {answering(hub, sample)} |", flush=True)


def all_questions(articles: Sequence[dict[str, Any]]) -> list[ArticleQuestion]:
    questions = []
    for row in articles:
        text = row["context"]
        for item in row["questions"]:
            at = text.find(item["answer"])
            sentence = next((text[a:b] for a, b in sentence_spans(text) if a <= at < b), text)
            questions.append(ArticleQuestion(item["question"], item["answer"], plain(sentence)))
    return questions


def written(articles: Sequence[dict[str, Any]], folder: Path) -> Path:
    """A Markdown file an article."""
    folder.mkdir(parents=True)
    texts: dict[str, list[str]] = defaultdict(list)
    for row in articles:
        texts[row["title"].replace("_", " ")].append(" ".join(row["context"].split()))
    for title, paragraphs in texts.items():
        name = title.replace("/", "-")
        (folder / f"{name}.md").write_text("\n\n".join([f"# {title}", *paragraphs]), encoding="utf-8")
    return folder


def ranking(hub: Hub, sample: Sequence[ArticleQuestion]) -> str:
    card = Card.open(hub.folder("articles"))
    texts = [source.text for source in passages(card.folder)]
    plains = [f" {plain(text)} " for text in texts]
    questions = [a.question for a in sample]
    index, vectors = Index.build(texts), minilm.embed(texts)
    cosines = minilm.embed(questions) @ vectors.T
    pool, sampling = CardPool([card]), Sampling()
    orders: dict[str, list[list[str]]] = {"BM25": [], "encoder": [], "kcard": []}
    for at, question in enumerate(questions):
        orders["BM25"].append([plains[row] for row, _ in index.search(question, DEEPEST)])
        orders["encoder"].append([plains[row] for row in _best(cosines[at])])
        written = pool.generate([question], [[card.name]], DEEPEST, sampling)[0]
        orders["kcard"].append([f" {plain(passage.text)} " for passage in written])
    lines = ["| ranking | " + " | ".join(f"first {k}" for k in FIRST) + " | MRR |", "|---" * 5 + "|"]
    for name, ranked in orders.items():
        ranks = [_rank(row, a.sentence) for row, a in zip(ranked, sample, strict=True)]
        shares = " | ".join(f"{sum(r <= k for r in ranks) / len(ranks):.3f}" for k in FIRST)
        lines.append(
            f"| {name} | {shares} | {statistics.fmean(1 / r if r <= DEEPEST else 0 for r in ranks):.3f} |"
        )
    return "\n".join(lines)


def _best(scores: Array) -> list[int]:
    return [int(row) for row in np.argsort(-scores, kind="stable")[:DEEPEST]]


def _rank(ranked: Sequence[str], sentence: str) -> int:
    return next((at for at, text in enumerate(ranked, start=1) if sentence in text), DEEPEST + 1)


def answering(hub: Hub, sample: Sequence[ArticleQuestion]) -> str:
    pipeline = Pipeline(hub=hub, cards="articles")
    timed, rest = [a.question for a in sample[:TIMED]], [a.question for a in sample[TIMED:]]
    begun = time.perf_counter()
    answers = [pipeline([question])[0] for question in timed]
    seconds = (time.perf_counter() - begun) / len(timed)
    for batch in batched(rest, BATCH):
        answers += pipeline(batch)
    recall = [
        any(f" {plain(a.answer)} " in f" {plain(p.text)} " for p in answer.passages if p.kept)
        for answer, a in zip(answers, sample, strict=True)
    ]
    is_known = [answer.answer != UNKNOWN_ANSWER for answer in answers]
    exact = [exact_match(answer.answer, [a.answer]) for answer, a in zip(answers, sample, strict=True)]
    overlap = [f1(answer.answer, [a.answer]) for answer, a in zip(answers, sample, strict=True)]
    answered = [at for at, said in enumerate(is_known) if said]
    shares = [
        statistics.fmean(recall),
        statistics.fmean(exact),
        statistics.fmean(overlap),
        1 - statistics.fmean(is_known),
        statistics.fmean(exact[at] for at in answered) if answered else 0.0,
        statistics.fmean(overlap[at] for at in answered) if answered else 0.0,
    ]
    return " | ".join(f"{share:.3f}" for share in shares) + f" | {seconds:.2f}"


if __name__ == "__main__":
    main()
