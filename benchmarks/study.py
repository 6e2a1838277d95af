"""Does study material help a card's model to answer people's questions?

    python -m benchmarks.study --path reading/squad-dev.jsonl.gz [--json]

The file has paragraphs of Wikipedia with people's questions (SQuAD), and of some of them the implications that GPT-4.1
wrote (SEAL). Two cards of kind model learn these paragraphs, one of them with the implications as study material, and
both are asked the people's questions. Recall: the share of questions whose answer stands in the greedy document, or in
any of three at temperature 0.7.
"""

import argparse
import gzip
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import kcard
from benchmarks.recall import Question, measured, rows
from kcard.training.corpus import read_corpus
from kcard.training.study.item import StudyItem, write_study
from kcard.words import passage_digest

LEAST = 20  # characters of an implication
NUMBERING = re.compile(r"^[\s\d.\-*]+|\*+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--limit", type=int, help="paragraphs at most")
    parser.add_argument("--seed", type=int, default=0)
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
        write_study(study, material(found, corpus))
        table = [
            trained(name, corpus, given, questions, Path(scratch) / name, args.seed)
            for name, given in (("pseudo-queries", None), ("with implications", study))
        ]
    if args.json:
        print(json.dumps({"paragraphs": len(found), "questions": len(questions), "rows": table}))
    else:
        print(f"{len(found)} paragraphs, {len(questions)} questions\n")
        print(rows(("queries", "greedy", "any of 3", "whole", "EM", "s"), table))


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
    name: str, corpus: Path, study: Path | None, questions: list[Question], output: Path, seed: int
) -> dict[str, Any]:
    begun = time.process_time()
    card = kcard.train(corpus, kind="model", study=study, output=output, seed=seed, exam=False)
    seconds = round(time.process_time() - begun)
    return {"queries": name, **measured(card, questions), "s": seconds}


if __name__ == "__main__":
    main()
