"""Recall of a card's corpus, shared by the benchmarks: figures and their tables.

Recall      share of questions with the gold answer in the document at temperature 0, or in any of three (at .7)
Whole       share of documents at temperature 0 that are passages of the corpus, word for word
EM          exact match of the embedded reader's answer from the document at temperature 0
Answerable  share of questions whose gold answer occurs in the corpus, the maximum of recall
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kcard.cards.card import Card
from kcard.cards.passages import passages
from kcard.cards.pool import CardPool
from kcard.evaluation.metrics import exact_match
from kcard.llms.extraction.extract import extract
from kcard.types import Sampling


@dataclass(frozen=True)
class Question:
    text: str
    answers: tuple[str, ...]


def plain(text: str) -> str:
    """Lower case without accents and punctuation, as answers are compared."""
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def holds(document: str, question: Question) -> bool:
    """Whether one of the accepted answers stands in the document, as whole words."""
    padded = f" {plain(document)} "
    return any(f" {plain(answer)} " in padded for answer in question.answers)


def measured(card: Card, questions: Sequence[Question], tokens: int = 100) -> dict[str, float]:
    """Recall, whole passages and EM of one card, which has its corpus' passages with it."""
    texts = {source.text for source in passages(card.folder)}
    greedy = documents(card, questions, 1, Sampling(temperature=0.0, tokens=tokens))
    three = documents(card, questions, 3, Sampling(temperature=0.7, tokens=tokens))
    read = [extract(question.text, found) for question, found in zip(questions, greedy, strict=True)]
    answers = [found.text if found else "" for found in read]
    corpus = "\n".join(texts)
    return {
        "greedy": recalled(questions, greedy),
        "any of 3": recalled(questions, three),
        "whole": share(found[0] in texts for found in greedy),
        "EM": share(bool(exact_match(a, q.answers)) for a, q in zip(answers, questions, strict=True)),
        "answerable": share(holds(corpus, question) for question in questions),
    }


def documents(card: Card, questions: Sequence[Question], count: int, sampling: Sampling) -> list[list[str]]:
    written = CardPool([card]).generate(
        [q.text for q in questions], [[card.name]] * len(questions), count, sampling
    )
    return [[passage.text for passage in found] for found in written]


def recalled(questions: Sequence[Question], written: Sequence[Sequence[str]]) -> float:
    return share(any(holds(d, q) for d in found) for q, found in zip(questions, written, strict=True))


def share(hits: Iterable[bool]) -> float:
    values = list(hits)
    return round(sum(values) / len(values), 3)


def rows(columns: Sequence[str], results: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table."""
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join(head + [f"| {' | '.join(str(row.get(c, '-')) for c in columns)} |" for row in results])
