"""Questions of people about encyclopedic articles: SQuAD, Natural Questions, HotpotQA and 2WikiMultihopQA.

DATA/reading/squad-dev.jsonl.gz (CC BY-SA 4.0), DATA/reading/nq-dev.jsonl.gz (CC BY-SA 3.0) and
DATA/multihop/*-dev.jsonl.gz. Every fourth article of SQuAD and every fourth question of NQ are held out.
"""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kcard.text import sentence_spans as sentences
from recipes.reader.example import Reading
from recipes.reader.near import Near

NEAR = 8
EVERY = 4


def squad(data: Path) -> tuple[list[Reading], list[Reading]]:
    """(to train on, held out)."""
    rows = list(_rows(data / "reading" / "squad-dev.jsonl.gz"))
    titles = sorted({row["title"] for row in rows})
    held_titles = set(titles[::EVERY])
    paragraphs: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        paragraphs[row["title"]].append(row["context"])
    parts: tuple[list[Reading], list[Reading]] = ([], [])
    for title in titles:
        near = Near([(_title(title), text) for text in paragraphs[title]])
        for row in rows:
            if row["title"] == title:
                for item in row["questions"]:
                    reading = _reading(
                        item["question"], _title(title), row["context"], [item["answer"]], title, near
                    )
                    parts[title in held_titles].extend(reading)
    return parts


def natural_questions(data: Path) -> tuple[list[Reading], list[Reading]]:
    """(to train on, held out)."""
    rows = list(_rows(data / "reading" / "nq-dev.jsonl.gz"))
    near = Near([(row["title"], _untokenised(row["context"])) for row in rows])
    parts: tuple[list[Reading], list[Reading]] = ([], [])
    for number, row in enumerate(rows):
        answers = [_untokenised(answer) for answer in row["answers"]]
        text = _untokenised(row["context"])
        parts[number % EVERY == 0].extend(
            _reading(row["question"], row["title"], text, answers, f"nq {number}", near)
        )
    return parts


def multihop(data: Path) -> list[Reading]:
    """A question over two paragraphs, with the one that holds the answer; the distractors do not answer."""
    readings: list[Reading] = []
    for name in ("hotpotqa", "2wikimultihopqa"):
        for row in _rows(data / "multihop" / f"{name}-dev.jsonl.gz"):
            answer = row["answers"][0]
            others = [(p["title"], p["text"]) for p in row["paragraphs"] if not p["supporting"]]
            near = Near(others)
            for p in row["paragraphs"]:
                if p["supporting"]:
                    readings += _reading(
                        row["question"], p["title"], p["text"], [answer], str(row["id"]), near
                    )
    return readings


def paragraphs(data: Path) -> list[list[tuple[str, str]]]:
    """(title, text) of the paragraphs beside each question over two of them."""
    return [
        [(p["title"], p["text"]) for p in row["paragraphs"]]
        for name in ("hotpotqa", "2wikimultihopqa")
        for row in _rows(data / "multihop" / f"{name}-dev.jsonl.gz")
    ]


def _reading(
    question: str, title: str, text: str, answers: Sequence[str], group: str, near: Near
) -> Iterator[Reading]:
    """Nothing where no answer stands in the text."""
    places = [place for answer in answers if (place := _place(question, text, answer))]
    if places:
        others = near.of(question, NEAR, lambda other: other == text or any(a in other for a in answers))
        spans = tuple(dict.fromkeys(span for span, _ in places))
        evidence = tuple(dict.fromkeys(sentence for _, sentence in places))
        yield Reading(question, title, text, True, spans, evidence, group, others)


def _place(question: str, text: str, answer: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Where the answer stands, and its sentence: of several places that in the sentence likest to the question."""
    question_words = _words(question)
    spans = sentences(text)
    places = []
    for match in re.finditer(re.escape(answer), text):
        sentence = next((s for s in spans if s[0] <= match.start() < s[1]), None)
        if sentence:
            places.append((len(question_words & _words(text[slice(*sentence)])), match.span(), sentence))
    if not places:
        return None
    _, span, sentence = max(places, key=lambda place: place[0])
    return span, sentence


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]{3,}", text.lower()))


def _title(name: str) -> str:
    return name.replace("_", " ")


def _untokenised(text: str) -> str:
    """Natural Questions puts blanks around marks."""
    text = re.sub(r" ?''", '"', re.sub(r"`` ?", '"', text))
    text = re.sub(r"([(\[]) ", r"\1", re.sub(r" ([,.;:!?%)\]])", r"\1", text))
    text = re.sub(r" ('s|'t|'re|'ve|n't)\b", r"\1", text)
    return text.replace("-LRB-", "(").replace("-RRB-", ")").replace(" - ", "-")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        yield from map(json.loads, stream)
