"""Ten separately trained cards asked together, against the card that knows alone.

    python -m benchmarks.joining --path squad-dev.jsonl.gz [--world articles parts] [--kind retrieval both model]

The file has paragraphs of Wikipedia with people's questions (SQuAD). A card learns each of ten texts:

    articles  the first ten articles
    parts     the two longest articles, each cut into five: cards about the same subject

Every question is asked of the card of its text alone and of all ten, with every option at its default. EM: exact match
of the answer. Read: the gold answer stands in a document that the LLM reads. The difference has the paired 95 %
interval of the bootstrap over questions. Then, of each kind: how often the card of the question's text is the one that
fits best, among the first two, among the first three (kcard.integrators.card_index).

`--worst` shows questions that only the card alone answers.
"""

import argparse
import gzip
import json
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import kcard
from benchmarks.kinds import KINDS, without_index
from benchmarks.recall import Question, holds
from kcard.answer import Answer
from kcard.batches import batched
from kcard.cards.format.folder import Card
from kcard.cards.format.routing import ROUTING, Profile
from kcard.evaluation.metrics import exact_match
from kcard.evaluation.record import Mean
from kcard.hub.registry import Hub
from kcard.integrators.card_index import CardIndex
from kcard.integrators.pipeline import Pipeline
from kcard.integrators.profiles import Profiles
from kcard.selectors.relevance import MiniLM

World = Literal["articles", "parts"]
SHARES = ("EM alone", "EM of ten", "difference", "read alone", "read of ten", "difference")
COLUMNS = ("texts", "kind", "mode", "questions", *SHARES)
MODES = ("top-down", "bottom-up")
CARDS = 10
CUT = 5  # parts of an article
BATCH = 32


@dataclass(frozen=True)
class Text:
    """What a card learns, and questions about it."""

    name: str
    title: str
    paragraphs: Sequence[str]
    questions: Sequence[Question]


@dataclass(frozen=True)
class Row:
    """A question asked of one card and of all."""

    card: str
    question: Question
    alone: Answer
    joined: Answer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", type=Path, required=True, help="squad-dev.jsonl.gz")
    parser.add_argument("--world", nargs="+", choices=get_args(World), default=[*get_args(World)])
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=[*KINDS])
    parser.add_argument("--mode", nargs="*", choices=MODES, default=[*MODES])
    parser.add_argument("--each", type=int, default=30, help="questions of a text, drawn with the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worst", type=int, default=0, help="lost questions of each row to show")
    parser.add_argument("--home", type=Path, help="keep the cards here, and use those that are there")
    args = parser.parse_args()
    with gzip.open(args.path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    lost, choices = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for world in args.world:
            found = texts(rows, world, args.each, args.seed)
            for kind in args.kind:
                hub = hub_of(found, kind, (args.home or Path(scratch)) / world)
                choices.append(f"{world}, {kind}: {choice(found, hub)}")
                for mode in args.mode:
                    asked = both_ways(found, hub, mode)
                    print(f"| {world} | {kind} | {mode} | {line(asked)} |", flush=True)
                    lost += [f"{world}, {kind}, {mode}: {told}" for told in worst(asked)[: args.worst]]
    print("\n".join(["", "first, in two, in three:", *choices, "", *lost]))


def texts(rows: Sequence[Mapping[str, Any]], world: World, each: int, seed: int) -> list[Text]:
    """The ten texts of a world, of each as many questions as are asked at most."""
    articles = [[*group] for _, group in groupby(rows, key=lambda row: row["title"])]
    if world == "parts":
        longest = sorted(articles, key=len, reverse=True)[: CARDS // CUT]
        articles = [part for rows in longest for part in _cut(rows)]
    found = []
    for number, part in enumerate(articles[:CARDS]):
        asked = [Question(q["question"], (q["answer"],)) for row in part for q in row["questions"]]
        drawn = random.Random(f"{seed} {number}").sample(asked, min(each, len(asked)))
        title = part[0]["title"]
        paragraphs = [" ".join(row["context"].split()) for row in part]
        found.append(Text(f"text-{number}", title, paragraphs, drawn))
    return found


def _cut(rows: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Five parts as long as each other, up to a paragraph."""
    ends = [len(rows) * at // CUT for at in range(CUT + 1)]
    return [rows[a:b] for a, b in pairwise(ends)]


def hub_of(found: Sequence[Text], kind: str, home: Path) -> Hub:
    """The hub with a card of each text: what is there already, or trained with every option at its default, without
    exam."""
    hub = Hub(home / kind)
    there = {entry.name for entry in hub.list()}
    for text in found:
        if text.name not in there:
            draft = home / f"draft-{kind}" / text.name
            if kind == "model":
                without_index(hub_of([text], "both", home).folder(text.name), draft)
            else:
                _train(text, kind, home, draft)
            hub.publish(draft)
    return hub


def _train(text: Text, kind: str, home: Path, draft: Path) -> None:
    corpus = home / "corpora" / f"{text.name}.md"
    corpus.parent.mkdir(parents=True, exist_ok=True)
    corpus.write_text("\n\n".join([f"# {text.title}", *text.paragraphs]) + "\n", encoding="utf-8")
    made = kcard.train(
        corpus,
        kind=kind,
        name=text.name,
        description=text.title,
        minutes=None if kind == "retrieval" else 600,
        output=draft,
        exam=False,
    )
    seconds = made.manifest.training.seconds if made.manifest.training else 0
    print(f"{text.name}, {text.title}, {kind}: {seconds:.0f} s", file=sys.stderr, flush=True)


def choice(found: Sequence[Text], hub: Hub) -> str:
    """How often the card that knows is the first, among the first two, among the first three."""
    names = [text.name for text in found]
    cards = [Card.open(hub.folder(name)) for name in names]
    read = [Profile.from_json((card.folder / ROUTING).read_text(encoding="utf-8")) for card in cards]
    profiles = Profiles.of(names, [profile for profile in read if profile is not None])
    index = CardIndex(MiniLM(), [card.manifest.description for card in cards], profiles)
    asked = [(question.text, text.name) for text in found for question in text.questions]
    places = [[names[i] for i in index(question)[0]].index(name) for question, name in asked]
    shares = (sum(place < most for place in places) / len(places) for most in (1, 2, 3))
    return ", ".join(f"{share:.3f}" for share in shares)


def both_ways(found: Sequence[Text], hub: Hub, mode: str) -> list[Row]:
    """Every question asked of the card of its text alone, and of all of them."""
    together = Pipeline(hub=hub, mode=mode, cards=[text.name for text in found])
    rows = []
    for text in found:
        own = Pipeline(hub=hub, mode=mode, cards=text.name)
        for batch in batched(text.questions, BATCH):
            asked = [question.text for question in batch]
            answers = zip(batch, own(asked), together(asked), strict=True)
            rows += [Row(text.name, question, alone, joined) for question, alone, joined in answers]
    return rows


def line(rows: Sequence[Row]) -> str:
    cells = [str(len(rows))]
    for measure in (exact, read):
        alone = [measure(row.question, row.alone) for row in rows]
        joined = [measure(row.question, row.joined) for row in rows]
        change = Mean.of([b - a for a, b in zip(alone, joined, strict=True)], paired=True)
        assert change is not None
        cells += [f"{sum(shares) / len(rows):.3f}" for shares in (alone, joined)]
        cells.append(f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]")
    return " | ".join(cells)


def exact(question: Question, answer: Answer) -> float:
    return exact_match(answer.answer, question.answers)


def read(question: Question, answer: Answer) -> float:
    return float(any(holds(passage.knowledge, question) for passage in answer.passages if passage.kept))


def worst(rows: Sequence[Row]) -> list[str]:
    """The questions that the card answers alone and not in company: what was said instead, from which cards."""
    found = []
    for row in rows:
        if exact(row.question, row.alone) > exact(row.question, row.joined):
            cards = ", ".join(p.card for p in row.joined.passages if p.kept) or "none"
            found.append(
                f"{row.question.text} [{row.card}] {row.alone.answer!r}; of ten {row.joined.answer!r} (read: {cards})"
            )
    return found


if __name__ == "__main__":
    main()
