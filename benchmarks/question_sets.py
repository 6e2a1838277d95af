"""Questions on documents with gold answers, from three sets, and how a reply is judged.

manuals    200 questions on the eight manuals of benchmarks/manuals; a fifth have no answer in the manual
tv         680 questions that owners of a television asked, with the section of its manual that answers each
questions  200 of the development splits of published sets (DATA/questions): an answer copied from the passage (span),
           yes, no, or none; the passages of these 200 are the corpus

A question of `questions` may speak of "the writer" or "he", since it was asked about one passage, and one without an
answer was asked about another passage, so it may be answered by a third: the set compares those who answer, and its
figures are no accuracies.
"""

import gzip
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recipes.packages import fetch, manuals

from benchmarks.real_documents import MANUALS, UNANSWERABLE, gathered, questions, verdict_of
from kcard.evaluation.metrics import f1, substring
from kcard.llms import parsing
from kcard.llms.embedded_llm import UNKNOWN_ANSWER

SetName = Literal["manuals", "tv", "questions"]
SETS: tuple[SetName, ...] = ("manuals", "tv", "questions")
TYPES = ("span", "none", "yes", "no")
SAMPLE = 200  # questions of DATA/questions
GOLDEN_RATIO = 0.618
SAME_ANSWER = 0.5  # word F1 with a copied answer, from which a reply counts as right

# How LLMs say that they don't know. Only the first sentence counts, so that an answer may end with what is missing.
PERSON = r"\b(?:I|we)(?:['’]m|\s+am|\s+are)?\s+"
NEGATION = r"(?:do(?:es)?|did|can|could|is|are|was|were)\s*(?:not|n['’]t)|cannot|not|no"
SOURCES = r"(?:documents?|passages?|context|texts?|information|manual|sources?|excerpts?|pieces?)"
TELLS = (
    r"(?:mention|provide|contain|specif|stat|say|includ|give|describ|explain|answer|tell|address|discuss|have|"
    r"indicat|list)"
)
ADMISSIONS = re.compile(
    rf"{PERSON}(?:{NEGATION})\s+(?:know|sure|certain|find|have|answer|determine|able|aware|see)"
    rf"|\b{SOURCES}\b[^.]{{0,60}}\b(?:{NEGATION})\s+(?:\w+\s+){{0,2}}{TELLS}"
    rf"|\b(?:not|n['’]t)\s+(?:\w+\s+)?(?:mentioned|specified|stated|provided|given|found|described|answered|"
    rf"listed|included|contained|known)\b[^.]*\b(?:in|by|from)\s+(?:\w+\s+){{0,3}}{SOURCES}"
    rf"|\bno\s+(?:\w+\s+)?(?:information|mention|answer)\b|^unknown\W*$|\bunable to (?:answer|find|determine)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class GoldQuestion:
    """A question and what answers it.

    corpus   name of the documents that it is asked of
    gold     alternatives, each a list of phrases that must all occur; none where nothing is right
    section  heading of the section that answers it; empty if unknown
    """

    id: str
    set: SetName
    corpus: str
    type: str
    question: str
    gold: tuple[tuple[str, ...], ...]
    section: str = ""

    @property
    def accepted(self) -> list[str]:
        return [" ".join(phrases) for phrases in self.gold]


def load_set(
    name: SetName, data: Path | None, packages: Path | None, scratch: Path, is_fetched: bool = False
) -> tuple[list[GoldQuestion], dict[str, Path]]:
    """Return the questions of a set, and the folder of each corpus, which is written below `scratch`.

    data        the folder with emanual/ and questions/
    packages    where the packages with manuals are, or go if `is_fetched`

    SystemExit where the folder that the set needs is not given, or lacks the files.
    """
    if name == "manuals":
        if packages is None:
            raise SystemExit("the set manuals needs --manuals-path: where the packages with manuals are")
        return _load_manuals(packages, scratch, is_fetched)
    if data is None:
        raise SystemExit(f"the set {name} needs --path: the folder with emanual/ and questions/")
    return _load_television(data, scratch) if name == "tv" else _load_published(data, scratch)


def evenly_spread(sample: Sequence[GoldQuestion], limit: int | None) -> list[GoldQuestion]:
    """Return the first `limit` questions, or all, of an order whose every beginning is spread over the whole sample."""
    count = len(sample)
    step = next((n for n in range(round(count * GOLDEN_RATIO), count) if math.gcd(n, count) == 1), 1)
    return [sample[index * step % count] for index in range(count)][:limit]


def _load_manuals(
    packages: Path, scratch: Path, is_fetched: bool
) -> tuple[list[GoldQuestion], dict[str, Path]]:
    sample: list[GoldQuestion] = []
    corpora: dict[str, Path] = {}
    for name, manual in manuals(MANUALS / "manuals.toml").items():
        if is_fetched:
            fetch(manual, packages)
        corpora[name] = gathered(manual, packages, scratch / "corpora" / name)
        for number, row in enumerate(questions(MANUALS / f"{name}.jsonl", name), start=1):
            question = GoldQuestion(f"{name}-{number:02}", "manuals", name, row.type, row.question, row.gold)
            sample.append(question)
    return sample, corpora


def _load_television(data: Path, scratch: Path) -> tuple[list[GoldQuestion], dict[str, Path]]:
    manual, asked = data / "emanual" / "smart-tv.md", data / "emanual" / "smart-tv.jsonl"
    if not manual.exists() or not asked.exists():
        raise SystemExit(f"{data / 'emanual'} must hold smart-tv.md and smart-tv.jsonl")
    corpus = scratch / "corpora" / "tv"
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / manual.name).write_text(manual.read_text(encoding="utf-8"), encoding="utf-8")
    rows = [json.loads(line) for line in asked.read_text(encoding="utf-8").splitlines()]
    sample = [
        GoldQuestion(r["id"], "tv", "tv", r["kind"], r["question"], ((r["answer"],),), r["section"])
        for r in rows
    ]
    return sample, {"tv": corpus}


def _load_published(data: Path, scratch: Path) -> tuple[list[GoldQuestion], dict[str, Path]]:
    rows: list[Mapping[str, Any]] = []
    for file in sorted((data / "questions").glob("*-dev.jsonl.gz")):
        lines = gzip.decompress(file.read_bytes()).decode().splitlines()
        rows += [row for row in map(json.loads, lines) if row["type"] in TYPES]
    if not rows:
        raise SystemExit(f"{data / 'questions'} holds no *-dev.jsonl.gz")
    count = min(SAMPLE, len(rows))
    chosen = [rows[index * len(rows) // count] for index in range(count)]
    corpus = scratch / "corpora" / "questions"
    corpus.mkdir(parents=True, exist_ok=True)
    passages = dict.fromkeys((row["title"], row["context"]) for row in chosen)
    table = "".join(json.dumps({"title": title, "text": text}) + "\n" for title, text in passages)
    (corpus / "passages.jsonl").write_text(table, encoding="utf-8")
    sample = []
    for row in chosen:
        kind = UNANSWERABLE if row["type"] == "none" else row["type"]
        gold = tuple((answer,) for answer in row["answers"]) if kind != UNANSWERABLE else ()
        sample.append(GoldQuestion(row["id"], "questions", "questions", kind, row["question"], gold))
    return sample, {"questions": corpus}


# Judging a reply.


def is_admission(reply: str) -> bool:
    """Whether the reply says, in whatever words, that the answer is not known."""
    if not reply.strip():
        return True
    admits = getattr(parsing, "admits_ignorance", None)
    if admits is not None:
        return bool(admits(reply))
    first = re.split(r"(?<=[.!?])\s", reply.strip(), maxsplit=1)[0]
    return bool(ADMISSIONS.search(first))


def judge(question: GoldQuestion, reply: str, is_known: bool) -> str:
    """Return right, wrong or unknown, as verdict_of does; "" for an answer about the television, which only token_f1
    measures. `is_known`: whether the reply is an answer."""
    if not is_known or question.set == "manuals":
        verdict = verdict_of(reply if is_known else UNKNOWN_ANSWER, question.gold)
    elif question.set == "tv":
        verdict = ""
    elif question.type in ("yes", "no"):
        verdict = "right" if parsing.from_text(reply) == float(question.type == "yes") else "wrong"
    elif substring(reply, question.accepted) or f1(reply, question.accepted) >= SAME_ANSWER:
        verdict = "right"
    else:
        verdict = "wrong"
    return verdict


def token_f1(question: GoldQuestion, reply: str, is_known: bool) -> float:
    """Return the word F1 with the nearest accepted answer; of a yes or no, whether the reply begins with it."""
    if not is_known:
        return 0.0
    if [answer.casefold() for answer in question.accepted] in (["yes"], ["no"]):
        return float(parsing.from_text(reply) == parsing.from_text(question.accepted[0]))
    return f1(reply, question.accepted)
