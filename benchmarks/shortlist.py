"""Does the shortlist contain the right card? MMLU's 57 subjects as descriptions, with its questions.

    python -m benchmarks.shortlist --path mmlu_redux-dev.json [--relevance minilm] [--limit N] [--json]

The file is MMLU-Redux's: rows with `id`, `question` and `choices`. It has no subjects, but 100 questions of each in the
order of their names, so `id` determines the subject. A description is the subject's name in words, as for the paper's
MMLU cards. Recall@k: the share of questions whose subject is among the k nearest.

    question      ranked by the question alone, as in kcard ask
    with options  ranked by the question with its four options, as if a user asked both in one text
    MRR           mean of 1 / rank of the right subject
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.options import AskOptions
from kcard.selectors.registry import make
from kcard.types import Choice

EACH = 100
KS = (1, 3, 5, 10, 20, 32)
SUBJECTS = [
    "abstract algebra",
    "anatomy",
    "astronomy",
    "business ethics",
    "clinical knowledge",
    "college biology",
    "college chemistry",
    "college computer science",
    "college mathematics",
    "college medicine",
    "college physics",
    "computer security",
    "conceptual physics",
    "econometrics",
    "electrical engineering",
    "elementary mathematics",
    "formal logic",
    "global facts",
    "high school biology",
    "high school chemistry",
    "high school computer science",
    "high school European history",
    "high school geography",
    "high school government and politics",
    "high school macroeconomics",
    "high school mathematics",
    "high school microeconomics",
    "high school physics",
    "high school psychology",
    "high school statistics",
    "high school US history",
    "high school world history",
    "human aging",
    "human sexuality",
    "international law",
    "jurisprudence",
    "logical fallacies",
    "machine learning",
    "management",
    "marketing",
    "medical genetics",
    "miscellaneous",
    "moral disputes",
    "moral scenarios",
    "nutrition",
    "philosophy",
    "prehistory",
    "professional accounting",
    "professional law",
    "professional medicine",
    "professional psychology",
    "public relations",
    "security studies",
    "sociology",
    "US foreign policy",
    "virology",
    "world religions",
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="mmlu_redux-*.json")
    parser.add_argument(
        "--relevance", default="minilm", help="a relevance selector: minilm, cosine, mpnet ..."
    )
    parser.add_argument("--limit", type=int, help="number of questions, evenly spread over the file")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = json.loads(args.path.read_text(encoding="utf-8"))["rows"]
    rows = rows[:: max(1, len(rows) // args.limit)][: args.limit] if args.limit else rows
    nearest = CardRanker(make("relevance", args.relevance), [Choice(name, name) for name in SUBJECTS])
    right = [SUBJECTS[row["id"] // EACH] for row in rows]
    questions = {
        "question": [row["question"] for row in rows],
        "with options": ["\n".join([row["question"], *row["choices"].values()]) for row in rows],
    }
    report: dict[str, Any] = {
        "questions": len(rows),
        "relevance": args.relevance,
        "shortlist": AskOptions.shortlist,
    }
    for name, texts in questions.items():
        ranks = [_rank(nearest, text, subject) for text, subject in zip(texts, right, strict=True)]
        report[name] = measured(ranks)
        report[name]["worst"] = worst(ranks, right)
    print(json.dumps(report) if args.json else table(report))


def _rank(nearest: CardRanker, text: str, subject: str) -> int:
    """Place of the right subject among all, from 1."""
    return [card.name for card in nearest(text, len(SUBJECTS))].index(subject) + 1


def measured(ranks: Sequence[int]) -> dict[str, Any]:
    figures = {f"recall@{k}": round(float(np.mean([rank <= k for rank in ranks])), 3) for k in KS}
    return figures | {"MRR": round(float(np.mean([1 / rank for rank in ranks])), 3)}


def worst(ranks: Sequence[int], subjects: Sequence[str]) -> dict[str, float]:
    """The five subjects that a shortlist of the default size misses most, with its recall."""
    groups: defaultdict[str, list[bool]] = defaultdict(list)
    for rank, subject in zip(ranks, subjects, strict=True):
        groups[subject].append(rank <= AskOptions.shortlist)
    shares = {subject: round(float(np.mean(hits)), 2) for subject, hits in groups.items()}
    return dict(sorted(shares.items(), key=lambda item: item[1])[:5])


def table(report: dict[str, Any]) -> str:
    columns = [*(f"recall@{k}" for k in KS), "MRR"]
    lines = [
        f"{report['questions']} questions, {len(SUBJECTS)} subjects, relevance {report['relevance']}",
        "",
        f"| ranked by | {' | '.join(columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for name in ("question", "with options"):
        lines.append(f"| {name} | {' | '.join(f'{report[name][c]:.3f}' for c in columns)} |")
    missed = ", ".join(f"{name} ({recall:.2f})" for name, recall in report["question"]["worst"].items())
    return "\n".join([*lines, "", f"least of all in the first {report['shortlist']}: {missed}"])


if __name__ == "__main__":
    main()
