"""What the judge learns from: statements about PopQA's facts, and paragraphs of SQuAD with the questions on them."""

import gzip
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random

__all__ = ["Asked", "popqa", "squad", "worn"]

FACTS = 300
QUESTIONS = 200
# Clauses that say nothing about the answer, as people's questions have them.
CLAUSES = (
    "when the old bridge was being repaired", "while the king was abroad", "in the days of the long drought",
    "if the records are right", "halfway through the summer", "as far as anyone remembers",
)  # fmt: skip
KEPT = 0.65  # of the question's words that are no names and no figures


@dataclass(frozen=True)
class Asked:
    question: str
    answers: tuple[str, ...]


def popqa(path: Path) -> tuple[list[str], list[Asked]]:
    """Statements about FACTS facts, drawn with a seed, and the questions."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    Random(1).shuffle(rows)
    text = Path(__file__).with_name("statements.toml").read_text(encoding="utf-8")
    relations = [(re.compile(row["question"]), row["statements"]) for row in tomllib.loads(text)["relation"]]
    told: list[str] = []
    asked: list[Asked] = []
    for row in rows:
        matches = ((question.fullmatch(row["input"]), forms) for question, forms in relations)
        found = next(((match[1], forms) for match, forms in matches if match), None)
        if found and len(asked) < FACTS:
            answers = tuple(json.loads(row["output"]))
            told += [form.format(x=found[0], o=answers[0]) for form in found[1]]
            asked.append(Asked(row["input"], answers))
    return told, asked[:QUESTIONS]


def squad(path: Path) -> tuple[list[str], list[Asked]]:
    """The paragraphs that GPT-4.1 wrote implications of (they are not read), and the first questions on them."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row.get("gpt41")]
    asked = [Asked(q["question"], (q["answer"],)) for row in rows for q in row["questions"]]
    return [" ".join(row["context"].split()) for row in rows], asked[:QUESTIONS]


def worn(question: str, rng: Random) -> str:
    """The question in fewer of its words, its names and figures among them, and with a clause."""
    first, *others = question.rstrip("?").split()
    kept = [word for word in others if word[0].isupper() or word[0].isdigit() or rng.random() < KEPT]
    return " ".join([first, *kept, rng.choice(CLAUSES)]) + "?"
