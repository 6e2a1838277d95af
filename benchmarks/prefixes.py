"""A trained prefix and a LoRA adapter on one base: what each recalls, its size, and the time that it takes.

    python -m benchmarks.prefixes --folder prefixes [--facts 10 40] [--tokens 32 128]
    python -m benchmarks.prefixes --base MODEL --corpus FILE --study FILE --questions FILE

The first form trains a tiny Llama on invented worlds, until it answers from ten statements before the question, and
keeps it in the folder (benchmarks/prefix_worlds.py); the cards learn new worlds. The second form does the same with any
base, a corpus, study material (`kcard study`) and questions: JSON lines with "question" and "answer".

All cards take equally many steps of equally many rows by objective distil. "untrained" is a prefix as it begins, the
keys and values of the corpus' first tokens. Recall is the share of questions whose answer stands in the card's greedy
document; seconds are the processor's, of training.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.prefix_worlds import base, question, statement, world
from benchmarks.recall import Question, documents, recalled, rows
from kcard.sampling import Sampling
from kcard.training.study.item import StudyItem, read_study, write_study
from kcard.training.train import train
from kcard.words import passage_digest

ROWS = 16  # a step
WEIGHTS = "adapter_model.safetensors"
COLUMNS = ("corpus", "card", "rate", "steps", "seconds", "kB", "final loss", "recall")
LEAST = 1e-9  # a learning rate that changes nothing


@dataclass(frozen=True)
class Material:
    name: str
    corpus: Path
    study: Path
    asked: list[Question]


def main() -> None:
    args = _arguments()
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        model = args.base or str(base(folder / "base", args.base_steps))
        for material in _materials(args, folder):
            for number, (name, options) in enumerate(_ways(args)):
                made = folder / f"{material.name}-{number}"
                found.append(
                    {"corpus": material.name, "card": name, **_measured(model, made, material, options, args)}
                )
                print(found[-1], file=sys.stderr)
    print(json.dumps(found) if args.json else rows(COLUMNS, found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where the tiny Llama and the cards are kept")
    parser.add_argument("--base", help="a model of the hub, or a folder")
    for name in ("corpus", "study", "questions"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--base-steps", type=int, default=1200)
    parser.add_argument("--facts", nargs="*", type=int, default=[10, 40], help="of invented worlds")
    parser.add_argument("--tokens", nargs="*", type=int, default=[32, 128], help="of prefixes")
    parser.add_argument("--rates", nargs="*", type=float, default=[0.02], help="learning rates of prefixes")
    parser.add_argument("--rank", type=int, default=16, help="of the adapter")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate of the adapter")
    parser.add_argument("--steps", type=int, default=300, help="of each card")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.base and not (args.corpus and args.study and args.questions):
        parser.error("--base needs --corpus, --study and --questions")
    return args


def _materials(args: argparse.Namespace, folder: Path) -> Iterator[Material]:
    if args.base:
        lines = filter(str.strip, args.questions.read_text(encoding="utf-8").splitlines())
        asked = [Question(row["question"], (row["answer"],)) for row in map(json.loads, lines)]
        yield Material(args.corpus.stem, args.corpus, args.study, asked)
        return
    for count in args.facts:
        facts = world(f"new {args.seed}", count)
        corpus, study = folder / f"{count}-facts.jsonl", folder / f"{count}-study.jsonl"
        corpus.write_text("".join(json.dumps({"text": statement(f)}) + "\n" for f in facts), encoding="utf-8")
        items = [
            StudyItem("direct", question(f), f[2], (passage_digest(statement(f)),), "invented") for f in facts
        ]
        write_study(study, items)
        yield Material(
            f"{count}-facts", corpus, study, [Question(item.text, (item.answer,)) for item in items]
        )


def _ways(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    yield f"LoRA, rank {args.rank}", {"method": "lora", "rank": args.rank, "learning_rate": args.rate}
    for tokens in args.tokens:
        for rate in (LEAST, *args.rates):
            name = f"prefix, {tokens} tokens{', untrained' if rate == LEAST else ''}"
            yield name, {"method": "prefix", "prefix_tokens": tokens, "learning_rate": rate}


def _measured(
    model: str, folder: Path, material: Material, options: dict[str, Any], args: argparse.Namespace
) -> dict[str, Any]:
    steps = 1 if options["learning_rate"] == LEAST else args.steps
    questions = sum(bool(item.answer) for item in read_study(material.study).items)
    begun = time.process_time()
    card = train(
        material.corpus,
        name="card",
        kind="model",
        base=model,
        objective="distil",
        study=material.study,
        output=folder,
        seed=args.seed,
        batch_size=ROWS,
        epochs=steps / -(-questions // ROWS),
        **options,
    )
    spent = time.process_time() - begun
    made = card.manifest.training.hyperparameters
    written = documents(card, material.asked, 1, Sampling(temperature=0.0, tokens=16))
    return {
        "rate": options["learning_rate"],
        "steps": made["steps"],
        "seconds": round(spent),
        "kB": round((card.folder / WEIGHTS).stat().st_size / 1000),
        "final loss": made["final_loss"],
        "recall": recalled(material.asked, written),
    }


if __name__ == "__main__":
    main()
