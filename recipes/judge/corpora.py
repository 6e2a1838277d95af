"""Training data of the judge: statements of PopQA's facts, and paragraphs of SQuAD with their questions."""

import gzip
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random

FACTS = 300
QUESTIONS = 200
# Clauses that say nothing about the answer, as people's questions have them.
CLAUSES = (
    "when the old bridge was being repaired", "while the king was abroad", "in the days of the long drought",
    "if the records are right", "halfway through the summer", "as far as anyone remembers",
)  # fmt: skip
SHARE_KEPT = 0.65  # of the question's words that are no names and no figures


@dataclass(frozen=True)
class CorpusQuestion:
    question: str
    answers: tuple[str, ...]


def popqa(path: Path) -> tuple[list[str], list[CorpusQuestion]]:
    """Statements about FACTS facts, drawn with a seed, and the questions."""
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    Random(1).shuffle(rows)
    text = Path(__file__).with_name("statements.toml").read_text(encoding="utf-8")
    relations = [(re.compile(row["question"]), row["statements"]) for row in tomllib.loads(text)["relation"]]
    texts: list[str] = []
    questions: list[CorpusQuestion] = []
    for row in rows:
        matches = ((question.fullmatch(row["input"]), forms) for question, forms in relations)
        relation = next(((match[1], forms) for match, forms in matches if match), None)
        if relation and len(questions) < FACTS:
            answers = tuple(json.loads(row["output"]))
            texts += [form.format(x=relation[0], o=answers[0]) for form in relation[1]]
            questions.append(CorpusQuestion(row["input"], answers))
    return texts, questions[:QUESTIONS]


def squad(path: Path) -> tuple[list[str], list[CorpusQuestion]]:
    """The paragraphs that GPT-4.1 wrote implications of (they are not read), and the first questions on them."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row.get("gpt41")]
    questions = [CorpusQuestion(q["question"], (q["answer"],)) for row in rows for q in row["questions"]]
    return [" ".join(row["context"].split()) for row in rows], questions[:QUESTIONS]


def worn(question: str, rng: Random) -> str:
    """The question in fewer of its words, its names and figures among them, and with a clause."""
    first, *others = question.rstrip("?").split()
    remaining = [
        word for word in others if word[0].isupper() or word[0].isdigit() or rng.random() < SHARE_KEPT
    ]
    return " ".join([first, *remaining, rng.choice(CLAUSES)]) + "?"
