"""Many syncs of a card with its folder: time compared with training from scratch, and retention.

    python -m benchmarks.sync --path wikidyk-dev.json [--passages 100] [--syncs 10] [--kind model] [--every 1]
    python -m benchmarks.sync --path xquad-en-dev.json --passages 80
    python -m benchmarks.sync --path demo/corpora/midterms-2022/house.txt --passages 80

The card is trained on the first facts of WikiDYK, paragraphs of XQuAD, or races of the demo's midterms, ten per file.
Before each sync, some are added, some removed, and in others the answer is replaced by another's. The model alone, if
there is one, answers questions about kept passages before and after the sync, about new ones, about all that were
removed so far (with their old answers), and about some that the card was never trained on. For a changed paragraph,
only the question whose answer changed is asked. Seconds are CPU seconds. `--keep FOLDER` continues with the card of
another run, `--afresh` compares it at the end with a card trained from scratch on the final folder, and `--rate` sets
other learning rates.
"""

import argparse
import json
import os
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import kcard
from kcard.batching import batched
from kcard.cards.card import Card
from kcard.evaluation.questions import ExamQuestion
from kcard.evaluation.recall import ask_card, score_recall
from kcard.events import ignore
from kcard.offline import incremental_update as incremental

A_FILE = 10
UNSEEN = {"rows": 100, "data": 10, "races": 40}  # of WikiDYK's facts, XQuAD's paragraphs, the demo's races
WORDINGS = 5  # of a race in the demo's corpus
RACE = re.compile(r"(?P<winner>.+) won (?P<state>.+)'s? (?P<district>\S+) congressional district in")
COLUMNS = (
    "| sync | passages | + | ~ | - | way | CPU s | of training | kB | old, before | old, after | new | removed |"
    " never learned |"
)


Text = tuple[str, tuple[ExamQuestion, ...]]


@dataclass(frozen=True)
class Passage:
    number: int
    text: str
    questions: tuple[ExamQuestion, ...]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--path", type=Path, required=True, help="wikidyk-dev.json, xquad-en-dev.json, house.txt"
    )
    parser.add_argument("--passages", type=int, default=100, help="that the card learns first")
    parser.add_argument("--syncs", type=int, default=10)
    parser.add_argument("--added", type=int, default=3, help="passages in each sync")
    parser.add_argument("--changed", type=int, default=1, help="passages in each sync")
    parser.add_argument("--removed", type=int, default=2, help="passages in each sync")
    parser.add_argument("--kind", choices=("model", "retrieval", "both"), default="model")
    parser.add_argument("--every", type=int, default=1, help="measure after this number of syncs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the card, to go on with")
    parser.add_argument("--afresh", action="store_true", help="train another card at the end")
    parser.add_argument("--rate", type=float, help="share of the learning rates")
    args = parser.parse_args()
    if args.rate:
        incremental.RATE = args.rate
    passages, unseen = _read(args.path)
    with tempfile.TemporaryDirectory() as scratch:
        place = (args.keep or Path(scratch)).absolute()
        os.environ["KCARD_HOME"] = str(place / "home")
        _follow(passages, unseen, place, args)


def _read(path: Path) -> tuple[list[Passage], list[Passage]]:
    """The passages to learn, and the last ones, which the card never learns."""
    if path.suffix == ".txt":
        kind, texts = "races", _races(path)
    else:
        data = json.loads(path.read_text(encoding="utf-8"))
        kind, texts = ("rows", _facts(data)) if "rows" in data else ("data", _paragraphs(data))
    passages = [Passage(number, *text) for number, text in enumerate(texts)]
    return passages[: -UNSEEN[kind]], passages[-UNSEEN[kind] :]


def _facts(data: dict[str, Any]) -> list[Text]:
    return [(row["fact"], (ExamQuestion(row["input"], (row["output"],)),)) for row in data["rows"]]


def _paragraphs(data: dict[str, Any]) -> list[Text]:
    return [
        (" ".join(paragraph["context"].split()), tuple(map(_question, paragraph["qas"])))
        for article in data["data"]
        for paragraph in article["paragraphs"]
    ]


def _races(path: Path) -> list[Text]:
    """Of each race all wordings, and MidtermQA's."""
    texts: list[Text] = []
    for lines in batched(path.read_text(encoding="utf-8").splitlines(), WORDINGS):
        race = RACE.match(lines[0])
        assert race, lines[0]
        district, state = race["district"], race["state"]
        items = (
            f"Who won the {district} congressional district of {state} in the 2022 U.S. midterm elections?"
        )
        texts.append(("\n".join(lines), (ExamQuestion(items, (race["winner"],)),)))
    return texts


def _question(row: dict[str, Any]) -> ExamQuestion:
    return ExamQuestion(row["question"], tuple(answer["text"] for answer in row["answers"]))


def _follow(
    passages: Sequence[Passage], unseen: Sequence[Passage], place: Path, args: argparse.Namespace
) -> None:
    rng, notes, state = Random(args.seed), place / "notes", place / "state.json"
    now, coming = list(passages[: args.passages]), iter(passages[args.passages :])
    removed: list[Passage] = []
    card = place / "home" / "drafts" / "followed"
    if not state.exists():
        _write(notes, now)
        state.write_text(
            json.dumps({"training": _trained(notes, card.name, args), "syncs": 0}), encoding="utf-8"
        )
        print(f"{len(now)} passages: {_recall(card, now)}, of those never learned {_recall(card, unseen)}\n")
    stored = json.loads(state.read_text(encoding="utf-8"))
    if not stored["syncs"]:
        print(f"trained in {stored['training']:.0f} CPU s\n\n{COLUMNS}\n|{'---|' * (COLUMNS.count('|') - 1)}")
    for number in range(1, stored["syncs"] + args.syncs + 1):
        gone = rng.sample(now, args.removed)
        stay = [passage for passage in now if passage not in gone]
        old = rng.sample([passage for passage in stay if _answered(passage)], args.changed)
        changed = [_changed(passage, rng.choice(passages)) for passage in old]
        new = [*changed, *(next(coming) for _ in range(args.added))]
        stay = [passage for passage in stay if passage not in old]
        replaced = [replace(passage, questions=(_answered(passage)[0],)) for passage in old]
        now, removed = [*stay, *new], [*removed, *gone, *replaced]
        if number <= stored["syncs"]:
            continue
        shown = number % args.every == 0
        before = _recall(card, stay) if shown else ""
        _write(notes, now)
        begun = time.process_time()
        result = kcard.sync(notes, "followed", publish=False)
        seconds = time.process_time() - begun
        state.write_text(json.dumps({**stored, "syncs": number}), encoding="utf-8")
        if not shown or result.record is None:
            continue
        size = sum(path.stat().st_size for path in card.rglob("*") if path.is_file()) // 1000
        recalls = [before, *(_recall(card, asked) for asked in (stay, new, removed, unseen))]
        way = f"{result.record.way}: {result.record.why}" if result.record.why else result.record.way
        counts = f"{len(now)} | {args.added} | {args.changed} | {args.removed} | {way}"
        print(
            f"| {number} | {counts} | {seconds:.1f} | {seconds / stored['training']:.2f} | {size} | "
            f"{' | '.join(recalls)} |",
            flush=True,
        )
    if args.afresh:
        seconds = _trained(notes, "afresh", args)
        other = card.with_name("afresh")
        print(
            f"\nTrained afresh in {seconds:.0f} CPU s: {_recall(other, now)}, removed {_recall(other, removed)}"
        )
        print(f"Followed: {_recall(card, now)}, removed {_recall(card, removed)}")


def _write(notes: Path, passages: Sequence[Passage]) -> None:
    """Each passage into its file, ten a file."""
    notes.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[str]] = {}
    for passage in sorted(passages, key=lambda passage: passage.number):
        files.setdefault(f"f{passage.number // A_FILE:03}.txt", []).append(passage.text)
    for path in notes.glob("*.txt"):
        if path.name not in files:
            path.unlink()
    for name, texts in files.items():
        (notes / name).write_text("\n".join(texts) + "\n", encoding="utf-8")


def _answered(passage: Passage) -> list[ExamQuestion]:
    """The questions whose answer stands in the passage."""
    return [question for question in passage.questions if question.answers[0] in passage.text]


def _changed(passage: Passage, other: Passage) -> Passage:
    """The passage with an answer of another one, and the question of it."""
    question, answer = _answered(passage)[0], other.questions[0].answers[0]
    text = passage.text.replace(question.answers[0], answer)
    return replace(passage, text=text, questions=(replace(question, answers=(answer,)),))


def _trained(notes: Path, name: str, args: argparse.Namespace) -> float:
    """CPU seconds."""
    options: dict[str, Any] = {} if args.kind == "retrieval" else {"base": "embedded", "minutes": 600}
    begun = time.process_time()
    kcard.train(
        notes,
        kind=args.kind,
        name=name,
        description="Notes",
        seed=args.seed,
        exam=False,
        **options,
    )
    return time.process_time() - begun


def _recall(folder: Path, passages: Sequence[Passage]) -> str:
    """Share of the passages' questions whose answer is in the document, and how many there are."""
    card = Card.open(folder)
    model_card = Card(folder, replace(card.manifest, kind="model")) if card.manifest.has_model else card
    questions = [question for passage in passages for question in passage.questions]
    texts = [[row[0].text] for row in ask_card(model_card, questions, 0, "cpu", ignore)]
    hits = score_recall(questions, texts)
    return f"{sum(hits) / max(1, len(hits)):.2f} of {len(hits)}"


if __name__ == "__main__":
    main()
