"""Are exams too easy? Recall on the questions that kcard makes from a text, compared with human questions.

    python -m benchmarks.natural_questions --path squad-dev.jsonl.gz [--articles 10] [--questions 60]

Each SQuAD article becomes a retrieval card, which is examined on questions made from the article and on as many human
ones. Prints both recalls and their difference for each article.
"""

import argparse
import gzip
import json
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kcard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--articles", type=int, default=10)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    articles: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with gzip.open(args.path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            articles[row["title"]].append(row)
    rng = random.Random(args.seed)
    print("| article | made | human | difference |\n|---|---|---|---|")
    differences = []
    for title in rng.sample(sorted(articles), args.articles):
        generated, human = recalls(articles[title], args.questions, args.seed)
        differences.append(generated - human)
        print(
            f"| {title.replace('_', ' ')} | {generated:.2f} | {human:.2f} | {generated - human:+.2f} |",
            flush=True,
        )
    print(f"| mean | | | {statistics.fmean(differences):+.3f} |")


def recalls(rows: Sequence[dict[str, Any]], count: int, seed: int) -> tuple[float, float]:
    """(on made questions, on human ones)."""
    human = [q for row in rows for q in row["questions"]]
    chosen = random.Random(seed).sample(human, min(count, len(human)))
    with tempfile.TemporaryDirectory() as scratch:
        corpus, questions = Path(scratch) / "article.md", Path(scratch) / "human.jsonl"
        title, paragraphs = rows[0]["title"].replace("_", " "), [row["context"] for row in rows]
        corpus.write_text("\n\n".join([f"# {title}", *paragraphs]), encoding="utf-8")
        questions.write_text(
            "".join(json.dumps({"question": q["question"], "answer": q["answer"]}) + "\n" for q in chosen),
            encoding="utf-8",
        )
        card = kcard.train(corpus, kind="retrieval", output=Path(scratch) / "card")
        exam = kcard.exam(card.folder, questions=questions, limit=count, seed=seed)
    assert exam.own is not None
    assert exam.given is not None
    assert exam.own.recall is not None
    assert exam.given.recall is not None
    return exam.own.recall.mean, exam.given.recall.mean


if __name__ == "__main__":
    main()
