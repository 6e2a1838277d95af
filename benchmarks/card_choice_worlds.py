"""Cards made from real data, whose questions are known, and further cards, for benchmarks/card_choice.py.

squad    one card per article, with human questions about its paragraphs
nq       one card per page: the paragraphs that answer questions typed into a search engine
wikidyk  one card per statement, with the question about it
manuals  one card per manual, of 120 passages, with the questions in benchmarks/manuals
mmlu     one card per subject: no corpus, its name as the description, and half of its questions as its exam
popqa    one card per relation, likewise
wiki     cards without questions: the first 90 words of paragraphs of HotpotQA and 2WikiMultihopQA, one card per title
"""

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipes.packages import manuals

from benchmarks.gate_relations import _relation
from benchmarks.real_documents import MANUALS, gathered, questions
from benchmarks.shortlist import EACH, SUBJECTS
from kcard.gates.popularity import BUILT_IN
from kcard.training.corpus import read_corpus
from kcard.training.description import telling_terms

WORLDS = ("squad", "nq", "wikidyk", "manuals", "mmlu", "popqa")
# Questions about whatever: no card was made of what answers them.
FOREIGN = ("trivia", "musique", "truthfulqa")
PASSAGES = 120  # of a manual
WORDS = 90


@dataclass(frozen=True)
class Maker:
    """What a card is made of. `exam`: questions that it answered right."""

    name: str
    world: str
    texts: Sequence[str]
    description: str
    exam: Sequence[str] = ()


@dataclass(frozen=True)
class WorldQuestion:
    """A question and the card that answers it; "" where none does."""

    world: str
    question: str
    card: str


@dataclass(frozen=True)
class Worlds:
    cards: Sequence[Maker]
    asked: Sequence[WorldQuestion]


def worlds(path: Path, packages: Path | None, count: int, each: int, seed: int) -> Worlds:
    """`count` cards and at most `each` questions of a world. `packages`: unpacked manuals (real_documents --fetch)."""
    rng = random.Random(seed)
    cards, questions = [], []
    for world_cards, questions_ in (
        _articles(path / "reading/squad-dev.jsonl.gz", "squad"),
        _articles(path / "reading/nq-dev.jsonl.gz", "nq"),
        _statements(path / "wikidyk-dev.json"),
        _manuals(packages) if packages else ([], []),
        _subjects(path / "mmlu_redux-dev.json", rng),
        _relations(path / "popqa-dev.json", rng),
        ([], _foreign(path)),
    ):
        cards += world_cards
        questions += questions_
    paragraphs = _paragraphs(path)
    cards += rng.sample(paragraphs, min(len(paragraphs), count - len(cards)))
    groups: defaultdict[str, list[WorldQuestion]] = defaultdict(list)
    for question in questions:
        groups[question.world].append(question)
    return Worlds(cards, [q for group in groups.values() for q in rng.sample(group, min(each, len(group)))])


def _rows(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def _table(path: Path) -> list[Any]:
    rows: list[Any] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def _articles(path: Path, world: str) -> tuple[list[Maker], list[WorldQuestion]]:
    texts: defaultdict[str, list[str]] = defaultdict(list)
    questions = []
    for row in _rows(path):
        name = f"{world}: {row['title']}"
        if row["context"] not in texts[name]:
            texts[name].append(row["context"])
        for question in row.get("questions", [row]):
            questions.append(WorldQuestion(world, question["question"], name))
    return [Maker(name, world, found, _terms(found)) for name, found in texts.items()], questions


def _terms(texts: Sequence[str]) -> str:
    """Return the description of a card whose texts have no titles."""
    *terms, last = telling_terms(texts) or [f"{len(texts)} passages"]
    return f"Texts about {', '.join(terms)} and {last}" if terms else f"Texts about {last}"


def _statements(path: Path) -> tuple[list[Maker], list[WorldQuestion]]:
    cards, questions = [], []
    for row in _table(path):
        name, text = f"wikidyk: {row['id']}", row["fact"].removeprefix("that ")
        cards.append(Maker(name, "wikidyk", [text], _terms([text])))
        questions.append(WorldQuestion("wikidyk", row["input"], name))
    return cards, questions


def _manuals(packages: Path) -> tuple[list[Maker], list[WorldQuestion]]:
    cards, items = [], []
    for name, manual in manuals(MANUALS / "manuals.toml").items():
        corpus = read_corpus(gathered(manual, packages, packages / "gathered" / name))
        passages = corpus.passages[:: -(-len(corpus.passages) // PASSAGES)]
        texts = [passage.in_context for passage in passages]
        cards.append(Maker(f"manuals: {name}", "manuals", texts, _terms(texts)))
        items += [
            WorldQuestion("manuals", q.question, f"manuals: {name}")
            for q in questions(MANUALS / f"{name}.jsonl", name)
            if q.gold
        ]
    return cards, items


def _subjects(path: Path, rng: random.Random) -> tuple[list[Maker], list[WorldQuestion]]:
    return _halved("mmlu", [(SUBJECTS[row["id"] // EACH], row["question"]) for row in _table(path)], rng)


def _relations(path: Path, rng: random.Random) -> tuple[list[Maker], list[WorldQuestion]]:
    templates: dict[str, str] = json.loads(BUILT_IN.read_text(encoding="utf-8"))
    return _halved("popqa", [(_relation(r["input"], templates), r["input"]) for r in _table(path)], rng)


def _halved(
    world: str, pairs: list[tuple[str, str]], rng: random.Random
) -> tuple[list[Maker], list[WorldQuestion]]:
    """Half of the questions for the exams, the other half to be asked."""
    rng.shuffle(pairs)
    exams: defaultdict[str, list[str]] = defaultdict(list)
    for name, question in pairs[::2]:
        exams[name].append(question)
    cards = [Maker(f"{world}: {name}", world, [], name, exam) for name, exam in exams.items()]
    return cards, [WorldQuestion(world, question, f"{world}: {name}") for name, question in pairs[1::2]]


def _foreign(path: Path) -> list[WorldQuestion]:
    questions = [
        WorldQuestion("truthfulqa", row["question"], "") for row in _table(path / "truthfulqa-dev.json")
    ]
    for world in ("trivia", "musique"):
        questions += [
            WorldQuestion(world, row["question"], "")
            for row in _rows(path / f"gate_replays/{world}-dev.jsonl.gz")
        ]
    return questions


def _paragraphs(path: Path) -> list[Maker]:
    texts: dict[str, str] = {}
    for name in ("hotpotqa", "2wikimultihopqa"):
        for row in _rows(path / f"multihop/{name}-dev.jsonl.gz"):
            for paragraph in row["paragraphs"]:
                texts.setdefault(paragraph["title"], " ".join(paragraph["text"].split()[:WORDS]))
    return [Maker(f"wiki: {title}", "wiki", [text], _terms([text])) for title, text in texts.items()]
