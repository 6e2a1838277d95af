"""Does study material help a card's model to answer people's questions?

    python -m benchmarks.study --path reading/squad-dev.jsonl.gz [--seeds 0 1] [--coverage] [--json]

The file has paragraphs of Wikipedia with people's questions (SQuAD), and of some of them the implications that GPT-4.1
wrote (SEAL). Cards of kind model learn these paragraphs: one from pseudo-queries alone, one with what the rules write
besides (kcard study without an LLM), one with the implications. All are asked the questions. Recall: the share of
questions whose answer stands in the greedy document, or in any of three at temperature 0.7.

Coverage, which takes no card, says how near the material comes to people's questions: the mean cosine of a question to
the nearest item, and the share of questions whose nearest item asks for a statement that holds the answer. "classified"
is the same share for a small network that learns, as the card does, which statement a query asks for.
"""

import argparse
import gzip
import json
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import kcard
from benchmarks.recall import Question, holds, measured, rows, share
from kcard.encoder import DIMENSIONS, embed
from kcard.protocols import Array
from kcard.training.corpus import read_corpus
from kcard.training.progress import silent
from kcard.training.pseudo_queries import PseudoQueries
from kcard.training.recipe import Recipe
from kcard.training.study.item import StudyItem, write_study
from kcard.training.study.learned import queries_of
from kcard.training.study.material import AUTO, study_material
from kcard.words import passage_digest

QUERIES = ("pseudo-queries", "with rules", "with implications")
DRAWN = 20  # queries for each statement
STEPS, BATCH = 300, 512  # of the classifier
RECALL = ("queries", "seed", "greedy", "any of 3", "whole", "EM", "s")
COVERAGE = ("queries", "items", "statements", "cosine", "nearest is right", "classified", "s")
LEAST = 20  # characters of an implication
NUMBERING = re.compile(r"^[\s\d.\-*]+|\*+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--limit", type=int, help="paragraphs at most")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=QUERIES)
    parser.add_argument("--coverage", action="store_true", help="train nothing")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with gzip.open(args.path, "rt", encoding="utf-8") as lines:
        found = [row for row in map(json.loads, lines) if row.get("gpt41")][: args.limit]
    questions = [Question(q["question"], (q["answer"],)) for row in found for q in row["questions"]]
    with tempfile.TemporaryDirectory() as scratch:
        corpus, study = Path(scratch) / "paragraphs.jsonl", Path(scratch) / "study.jsonl"
        corpus.write_text(
            "".join(json.dumps({"text": row["context"]}) + "\n" for row in found), encoding="utf-8"
        )
        implications = material(found, corpus)
        write_study(study, implications)
        if args.coverage:
            columns: tuple[str, ...] = (
                "queries",
                "items",
                "statements",
                "cosine",
                "nearest is right",
                "classified",
                "s",
            )
            table = [covered(name, corpus, implications, questions, args.seeds) for name in args.queries]
        else:
            columns = RECALL
            given = dict(zip(QUERIES, (None, "auto", study), strict=True))
            table = [
                trained(name, corpus, given[name], questions, Path(scratch) / f"{name} {seed}", seed)
                for seed in args.seeds
                for name in args.queries
            ]
    if args.json:
        print(json.dumps({"paragraphs": len(found), "questions": len(questions), "rows": table}))
    else:
        print(f"{len(found)} paragraphs, {len(questions)} questions\n")
        print(rows(columns, table))


def covered(
    name: str, corpus: Path, implications: list[StudyItem], questions: list[Question], seeds: list[int]
) -> dict[str, Any]:
    """How near queries come to people's questions."""
    begun = time.process_time()
    read = read_corpus(corpus)
    items: Sequence[StudyItem] = ()
    if name != QUERIES[0]:
        items = implications if name == QUERIES[2] else study_material(AUTO, read.passages, silent).items
    seconds = round(time.process_time() - begun)
    queries = queries_of(items, read.passages).by_statement
    asked = embed([question.text for question in questions])
    found: dict[str, Any] = {"queries": name, "s": seconds}
    if queries:
        about = [(text, query) for text, given in queries.items() for query in given]
        cosines = asked @ embed([query for _, query in about]).T
        found["items"], found["statements"] = len(about), f"{len(queries)} of {len(read.statements)}"
        found["cosine"] = round(float(cosines.max(1).mean()), 3)
        found["nearest is right"] = right((about[at][0] for at in cosines.argmax(1)), questions)
    hits = [right(classified([*read.texts], queries, asked, seed), questions) for seed in seeds]
    return {**found, "classified": round(sum(hits) / len(hits), 3)}


def right(statements: Iterable[str], questions: list[Question]) -> float:
    """The share of questions whose statement holds an answer."""
    return share(holds(text, question) for text, question in zip(statements, questions, strict=True))


def classified(texts: list[str], queries: Mapping[str, Sequence[str]], asked: Array, seed: int) -> list[str]:
    """The statement that each question, (n, 384), asks for: by a network of one hidden layer that learned it from the
    queries that a card would, with the card's noise and share of the statements' own embeddings."""
    import torch
    from torch.nn import GELU, Linear, Sequential
    from torch.nn.functional import cross_entropy, normalize

    recipe, ask, rng = Recipe(), PseudoQueries(texts, queries), Random(seed)
    learned = [
        query for text in texts for query in (text, *(ask(text, rng, noised=False) for _ in range(DRAWN)))
    ]
    vectors = torch.from_numpy(embed(learned))
    torch.manual_seed(seed)
    network = Sequential(Linear(DIMENSIONS, 256), GELU(), Linear(256, len(texts)))
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(vectors), (BATCH,))
        rows = torch.where(torch.rand(BATCH) < recipe.own, rows - rows % (DRAWN + 1), rows)
        noised = vectors[rows] + recipe.noise * torch.randn(BATCH, DIMENSIONS)
        loss = cross_entropy(network(normalize(noised, dim=-1)), rows // (DRAWN + 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return [texts[row] for row in network(torch.from_numpy(asked)).argmax(1).tolist()]


def material(found: list[dict[str, Any]], corpus: Path) -> list[StudyItem]:
    """The implications, each about the passages that its paragraph became."""
    passages = read_corpus(corpus).passages
    items = []
    for row in found:
        text = " ".join(row["context"].split())
        digests = tuple(passage_digest(p.text) for p in passages if " ".join(p.text.split()) in text)
        said = row["gpt41"] if isinstance(row["gpt41"], list) else [row["gpt41"]]
        for line in (NUMBERING.sub("", line).strip() for text in said for line in text.splitlines()):
            if len(line) >= LEAST and digests:
                items.append(StudyItem("implication", line, "", digests, "GPT-4.1"))
    return items


def trained(
    name: str, corpus: Path, study: Path | str | None, questions: list[Question], output: Path, seed: int
) -> dict[str, Any]:
    begun = time.process_time()
    card = kcard.train(corpus, kind="model", study=study, minutes=600, output=output, seed=seed, exam=False)
    seconds = round(time.process_time() - begun)
    return {"queries": name, "seed": seed, **measured(card, questions), "s": seconds}


if __name__ == "__main__":
    main()
