"""A card follows its folder through many syncs: time against training from scratch, and what it remembers.

    python -m benchmarks.sync --path wikidyk-dev.json [--facts 100] [--syncs 10] [--kind model] [--every 1]

The card learns the first facts of WikiDYK, ten a file. Before each sync some facts are added, some removed, and in
others the answer is replaced by that of another fact. Each fact's own question is asked, of the model alone where there
is one: of those that stay before and after the sync, of those that came, of all that have been removed so far with the
answers that they had, and of 100 that the card never learned. Seconds are those of the processor. `--keep FOLDER` goes
on with the card that another run has left there.
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
from kcard.cards.format.folder import Card
from kcard.evaluation.asking import ask
from kcard.evaluation.progress import silent
from kcard.evaluation.questions import Question
from kcard.evaluation.recall import recalled

A_FILE = 10
UNSEEN = 100
COLUMNS = (
    "| sync | passages | + | ~ | - | way | CPU s | of training | kB | old, before | old, after | new | removed |"
    " never learned |"
)


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
    parser.add_argument("--keep", type=Path, help="a folder for the card, to go on with")
    given = parser.parse_args()
    rows = json.loads(given.path.read_text(encoding="utf-8"))["rows"]
    facts = [
        Fact(number, row["fact"], Question(row["input"], (row["output"],))) for number, row in enumerate(rows)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        place = (given.keep or Path(scratch)).absolute()
        os.environ["KCARD_HOME"] = str(place / "home")
        _follow(facts, place, given)


def _follow(facts: Sequence[Fact], place: Path, given: argparse.Namespace) -> None:
    rng, notes, state = Random(given.seed), place / "notes", place / "state.json"
    now, coming, unseen = list(facts[: given.facts]), iter(facts[given.facts :]), facts[-UNSEEN:]
    removed: list[Fact] = []
    card = place / "home" / "drafts" / "followed"
    if not state.exists():
        _write(notes, now)
        state.write_text(json.dumps({"training": _trained(notes, given), "syncs": 0}), encoding="utf-8")
        print(f"{len(now)} facts: {_recall(card, now)}, of those never learned {_recall(card, unseen)}\n")
    known = json.loads(state.read_text(encoding="utf-8"))
    if not known["syncs"]:
        print(f"trained in {known['training']:.0f} CPU s\n\n{COLUMNS}\n|{'---|' * (COLUMNS.count('|') - 1)}")
    for number in range(1, known["syncs"] + given.syncs + 1):
        gone = rng.sample(now, given.removed)
        stay = [fact for fact in now if fact not in gone]
        old = rng.sample([fact for fact in stay if fact.question.answers[0] in fact.text], given.changed)
        changed = [_changed(fact, rng.choice(facts)) for fact in old]
        new = [*changed, *(next(coming) for _ in range(given.added))]
        stay = [fact for fact in stay if fact not in old]
        now, removed = [*stay, *new], [*removed, *gone, *old]
        if number <= known["syncs"]:
            continue
        shown = number % given.every == 0
        before = _recall(card, stay) if shown else ""
        _write(notes, now)
        begun = time.process_time()
        found = kcard.sync(notes, "followed", publish=False)
        seconds = time.process_time() - begun
        state.write_text(json.dumps({**known, "syncs": number}), encoding="utf-8")
        if not shown or found.record is None:
            continue
        size = sum(path.stat().st_size for path in card.rglob("*") if path.is_file()) // 1000
        recalls = [before, *(_recall(card, asked) for asked in (stay, new, removed, unseen))]
        counts = f"{len(now)} | {given.added} | {given.changed} | {given.removed} | {found.record.way}"
        print(
            f"| {number} | {counts} | {seconds:.1f} | {seconds / known['training']:.2f} | {size} | "
            f"{' | '.join(recalls)} |",
            flush=True,
        )


def _write(notes: Path, facts: Sequence[Fact]) -> None:
    """Each fact into its file, ten a file."""
    notes.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[str]] = {}
    for fact in sorted(facts, key=lambda fact: fact.number):
        files.setdefault(f"f{fact.number // A_FILE:03}.txt", []).append(fact.text)
    for path in notes.glob("*.txt"):
        if path.name not in files:
            path.unlink()
    for name, texts in files.items():
        (notes / name).write_text("\n".join(texts) + "\n", encoding="utf-8")


def _changed(fact: Fact, other: Fact) -> Fact:
    """The fact with the answer of another one."""
    answer, (old,) = other.question.answers[0], fact.question.answers
    question = replace(fact.question, answers=(answer,))
    return replace(fact, text=fact.text.replace(old, answer), question=question)


def _trained(notes: Path, given: argparse.Namespace) -> float:
    options: dict[str, Any] = {} if given.kind == "retrieval" else {"base": "embedded"}
    begun = time.process_time()
    kcard.train(
        notes,
        kind=given.kind,
        name="followed",
        description="Facts",
        seed=given.seed,
        exam=False,
        **options,
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
