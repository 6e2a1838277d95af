"""Questions that people wrote about texts of many kinds, each set in files of one form: DATA/questions.

A file SOURCE-train|dev.jsonl.gz holds one JSON object a line: title, context, question, answers, answer_start and type
(span, free, yes, no or none). Each set has a licence of its own, see the README beside the weights. `SHARES` says how
much of a set an epoch reads; what was left out altogether has no share.
"""

import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kcard.text import sentence_spans as sentences
from recipes.reader.example import Reading, Spans
from recipes.reader.near import Near

# The share of its questions that an epoch reads.
SHARES = {
    "boolq": 0.3,
    "clapnq": 1.0,
    "covidqa": 0.5,
    "fairytaleqa": 0.35,
    "mismatch-none": 0.3,
    "molweni": 0.2,
    "nq-gold": 1.0,
    "pubmedqa": 0.1,
    "qamr-wiki": 0.7,
    "squad-sentence": 0.2,
    "squadshifts-amazon": 0.4,
    "squadshifts-reddit": 0.4,
    "squadshifts-wiki": 1.0,
    "strategyqa-facts": 0.1,
}
TITLED = (
    "boolq",
    "clapnq",
    "nq-gold",
    "squadshifts-wiki",
)  # the title is a heading that says what the text is about
NEAR = {
    "squadshifts-wiki": 8,
    "nq-gold": 8,
    "clapnq": 4,
}  # texts that are like a question and do not answer it
DECIDED = (
    "boolq",
    "pubmedqa",
    "strategyqa-facts",
)  # answered by yes or no: they tell only that a text answers
PLACES = {"fairytaleqa": 1}  # spans that tell the sentence: of several occurrences of one answer the first
ALIGNED = 0.7  # share of a free answer's words that one sentence must hold to be its evidence
WORD = re.compile(r"[a-z0-9]{3,}")
BLANKS = re.compile(r"\s")


def questions(data: Path, source: str, split: str) -> list[Reading]:
    """Read one set's `train` or `dev` questions."""
    path = data / "questions" / f"{source}-{split}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    near: dict[str, Near] = {}
    if source in NEAR:
        # The paragraphs of one article are alike; where there are none beside it, those of all articles.
        texts: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for row in rows:
            texts[row["title"] if source == "squadshifts-wiki" else ""].append((row["title"], row["context"]))
        near = {group: Near(list(dict.fromkeys(pairs))) for group, pairs in texts.items()}
    return [_reading(source, row, near.get(row["title"], near.get(""))) for row in rows]


def draw(data: Path, number: int, shares: Mapping[str, float] = SHARES) -> list[Reading]:
    """Return the training questions of an epoch, of which more is known than that the text answers them.

    Epochs that follow each other read other questions, until a set has been read through.
    """
    drawn: list[Reading] = []
    for source, share in sorted(shares.items()):
        rows = [
            reading
            for reading in questions(data, source, "train")
            if reading.evidence or not reading.answered or source in DECIDED
        ]
        random.Random(source).shuffle(rows)
        count = round(share * len(rows))
        drawn += (rows[at % len(rows)] for at in range(number * count, (number + 1) * count))
    return drawn


def held_out(data: Path) -> dict[str, list[Reading]]:
    """Return every set's `dev` questions, with the wrong texts that were made for them, and all of them together."""
    sets: dict[str, list[Reading]] = {source: [] for source in SHARES}
    for source in SHARES:
        for reading in questions(data, source, "dev"):
            sets.get(reading.group.partition(" ")[0], sets[source]).append(reading)
    sets = {source: readings for source, readings in sets.items() if readings}
    return sets | {"all sets": [reading for readings in sets.values() for reading in readings]}


def _reading(source: str, row: Mapping[str, Any], near: Near | None) -> Reading:
    # Blanks of every kind count as one, so that places stay what they are.
    question, text = row["question"].strip(), BLANKS.sub(" ", row["context"])
    section = row["title"] if source in TITLED else ""
    group = f"{row.get('from', row['source'])} {row['title'] or text[:80]}"
    if row["type"] == "none":
        return Reading(question, section, text, False, group=group)
    if row["type"] in ("yes", "no"):
        return Reading(question, section, text, group=group)
    spans: Spans = ()
    if row["type"] == "span":
        pairs = zip(row["answer_start"], row["answers"], strict=True)
        spans = tuple(dict.fromkeys((start, start + len(answer)) for start, answer in pairs))
        evidence = _around(text, spans[: PLACES.get(source)])
    elif "evidence" in row:
        parts = [BLANKS.sub(" ", part) for part in row["evidence"]]
        evidence = tuple((start, start + len(part)) for part in parts if (start := text.find(part)) >= 0)
    else:
        evidence = _aligned(text, row["answers"])
    others: tuple[tuple[str, str], ...] = ()
    if near:
        answers = [text[a:b] for a, b in spans]
        others = near.of(
            question, NEAR[source], lambda t: t == row["context"] or any(answer in t for answer in answers)
        )
    return Reading(question, section, text, True, spans, evidence, group, others)


def _around(text: str, spans: Spans) -> Spans:
    """Return the sentences in which the spans lie."""
    return tuple(s for s in sentences(text) if any(a < s[1] and b > s[0] for a, b in spans))


def _aligned(text: str, answers: Sequence[str]) -> Spans:
    """Return the sentence that holds most of a free answer's words; none where it holds too few."""
    best: tuple[float, Spans] = (ALIGNED, ())
    for answer in answers:
        words = set(WORD.findall(answer.lower()))
        for place in sentences(text) if len(words) > 1 else ():
            share = len(words & set(WORD.findall(text[slice(*place)].lower()))) / len(words)
            best = max(best, (share, (place,)))
    return best[1]
