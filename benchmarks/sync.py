"""A card follows its folder through many syncs: time against training from scratch, and what it remembers.

    python -m benchmarks.sync --path wikidyk-dev.json [--facts 100] [--syncs 10] [--kind model] [--every 1]

The card learns the first facts of WikiDYK, ten a file. Before each sync some facts are added, some removed, and in
some the answer is replaced by that of another fact. Each fact's own question is asked, of the model alone where there
is one: of those that stay before and after the sync, of those that came, and of all that have been removed so far with
the answers that they had. At the end a card is trained from scratch on the same folder, which shows what is recalled of
facts that it never saw. Seconds are those of the processor.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import kcard
from benchmarks.prompt_styles import stated
from kcard.cards.format.folder import Card
from kcard.evaluation.asking import ask
from kcard.evaluation.progress import silent
from kcard.evaluation.questions import Question
from kcard.evaluation.recall import recalled

A_FILE = 10
COLUMNS = "| sync | + | ~ | - | way | CPU s | of training | kB | old, before | old, after | new | removed |"


@dataclass(frozen=True)
class Fact:
    number: int
    text: str
    question: Question


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="wikidyk-dev.json")
    parser.add_argument("--facts", type=int, default=100, help="that the card learns first")
    parser.add_argument("--syncs", type=int, default=10)
    parser.add_argument("--added", type=int, default=3, help="facts in each sync")
    parser.add_argument("--changed", type=int, default=1, help="facts in each sync")
    parser.add_argument("--removed", type=int, default=2, help="facts in each sync")
    parser.add_argument("--kind", choices=("model", "retrieval", "both"), default="model")
    parser.add_argument("--every", type=int, default=1, help="ask and print after so many syncs")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = json.loads(given.path.read_text(encoding="utf-8"))["rows"]
    made = [
        Fact(number, stated(row["fact"]), Question(row["input"], (row["output"],)))
        for number, row in enumerate(rows)
    ]
    facts = [fact for fact in made if fact.question.answers[0] in fact.text]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["KCARD_HOME"] = str(Path(scratch) / "home")
        _follow(facts, Path(scratch), given)


def _follow(facts: Sequence[Fact], scratch: Path, given: argparse.Namespace) -> None:
    rng, notes = Random(given.seed), scratch / "notes"
    now, coming = list(facts[: given.facts]), iter(facts[given.facts :])
    removed: list[Fact] = []
    _write(notes, now)
    training = _trained(notes, "followed", given)
    card = scratch / "home" / "drafts" / "followed"
    print(f"{len(now)} facts, trained in {training:.0f} CPU s: {_recall(card, now)}\n\n{COLUMNS}")
    print("|" + "---|" * (COLUMNS.count("|") - 1))
    for number in range(1, given.syncs + 1):
        shown = number % given.every == 0
        gone = rng.sample(now, given.removed + given.changed)
        new = [next(coming) for _ in range(given.added)]
        changed = [_changed(fact, rng.choice(facts)) for fact in gone[: given.changed]]
        stay = [fact for fact in now if fact not in gone]
        before = _recall(card, stay) if shown else ""
        now = [*stay, *changed, *new]
        removed += gone
        _write(notes, now)
        begun = time.process_time()
        found = kcard.sync(notes, "followed", publish=False)
        seconds = time.process_time() - begun
        if not shown or found.record is None:
            continue
        size = sum(path.stat().st_size for path in card.rglob("*") if path.is_file()) // 1000
        counts = f"{given.added} | {given.changed} | {given.removed}"
        recalls = (before, _recall(card, stay), _recall(card, [*changed, *new]), _recall(card, removed))
        print(
            f"| {number} | {counts} | {found.record.way} | {seconds:.1f} | {seconds / training:.2f} | {size} | "
            f"{' | '.join(recalls)} |",
            flush=True,
        )
    seconds, fresh = _trained(notes, "fresh", given), scratch / "home" / "drafts" / "fresh"
    print(f"\nfrom scratch on the last folder: {seconds:.0f} CPU s, recall {_recall(fresh, now)}, ", end="")
    print(f"of what was removed {_recall(fresh, removed)}")


def _write(notes: Path, facts: Sequence[Fact]) -> None:
    """Each fact into its file, ten a file."""
    notes.mkdir(exist_ok=True)
    files: dict[str, list[str]] = {}
    for fact in sorted(facts, key=lambda fact: fact.number):
        files.setdefault(f"facts{fact.number // A_FILE:03}.txt", []).append(fact.text)
    for path in notes.glob("*.txt"):
        if path.name not in files:
            path.unlink()
    for name, texts in files.items():
        (notes / name).write_text("\n".join(texts) + "\n", encoding="utf-8")


def _changed(fact: Fact, other: Fact) -> Fact:
    """The fact with the answer of another one."""
    answer, (old,) = other.question.answers[0], fact.question.answers
    return replace(
        fact, text=fact.text.replace(old, answer), question=replace(fact.question, answers=(answer,))
    )


def _trained(notes: Path, name: str, given: argparse.Namespace) -> float:
    options: dict[str, Any] = {} if given.kind == "retrieval" else {"base": "embedded"}
    begun = time.process_time()
    kcard.train(
        notes, kind=given.kind, name=name, description="facts", seed=given.seed, exam=False, **options
    )
    return time.process_time() - begun


def _recall(folder: Path, facts: Sequence[Fact]) -> str:
    """Share of the facts' questions whose answer is in the document, and how many there are."""
    card = Card.open(folder)
    asked = Card(folder, replace(card.manifest, index=False)) if card.manifest.has_model else card
    questions = [fact.question for fact in facts]
    texts = [[row[0].text] for row in ask(asked, questions, 0, "cpu", silent)]
    hits = recalled(questions, texts)
    return f"{sum(hits) / max(1, len(hits)):.2f} of {len(hits)}"


if __name__ == "__main__":
    main()
