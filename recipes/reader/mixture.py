"""What the reader learns from in an epoch: every question with its text, and texts that do not answer it."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from recipes.reader.example import Reading, around, without
from recipes.reader.prose import Prose
from recipes.reader.synth import Example, Synthesis

__all__ = ["batches", "epoch"]

WORDS = (25, 60, 100, 150, 150, 150)  # lengths of texts cut out of articles
WHOLE = ("VitaminC", "manual")
NEAR = {"article": 0.35, "manual": 0.56, "VitaminC": 0.1}  # wrong texts for each right one
REMOVED = 0.15  # share of questions that are asked of their text without the sentences that answer, too
UNTITLED = 0.15  # share of texts without their headings
NEAREST = 0.85  # share of wrong texts that are like the question
CLAIMS, INVENTED, PROSE = 2000, 2600, 1600  # examples an epoch
LONGEST = 150  # words of a wrong text


def epoch(
    articles: Sequence[Reading], manuals: Sequence[Reading], claims: Sequence[Reading], seed: int
) -> list[Reading]:
    """The examples of one epoch; another seed, another draw."""
    rng = random.Random(seed)
    pool = [(r.section, r.text) for r in (*articles, *manuals) if r.answered]
    found: list[Reading] = []
    for kind, group in (
        ("article", articles),
        ("manual", manuals),
        ("VitaminC", rng.sample(claims, min(CLAIMS, len(claims)))),
    ):
        for reading in group:
            found += _examples(reading, kind, pool, rng)
    invented, prose = Synthesis(seed, 0.4), Prose(seed)
    found += (part for _ in range(INVENTED) for part in _read(invented.example(), rng))
    found += (part for _ in range(PROSE) for part in _read(prose.example(), rng))
    return [replace(r, section="") if r.section and rng.random() < UNTITLED else r for r in found]


def _examples(
    reading: Reading, kind: str, pool: Sequence[tuple[str, str]], rng: random.Random
) -> Iterator[Reading]:
    if reading.text:
        order = (rng.random() < 0.5 for _ in itertools.count())
        yield around(reading, rng.choice(WORDS), order) if kind == "article" and reading.answered else reading
        if reading.answered and kind != "VitaminC" and rng.random() < REMOVED and (rest := without(reading)):
            yield rest
    for _ in range(int(NEAR[kind] + rng.random())):
        if reading.near and rng.random() < NEAREST:
            section, text = reading.near[min(int(rng.expovariate(0.35)), len(reading.near) - 1)]
        else:
            section, text = rng.choice(pool)
        yield Reading(reading.question, section, _cut(text, rng), False)


def _cut(text: str, rng: random.Random) -> str:
    """At most LONGEST words in a row."""
    words = text.split(" ")
    start = rng.randrange(max(1, len(words) - LONGEST + 1))
    return text if len(words) <= LONGEST else " ".join(words[start : start + LONGEST])


def _read(example: Example, rng: random.Random) -> Iterator[Reading]:
    """Of a question with several passages the right one and a wrong one."""
    right = {number for number, _, _ in example.spans}
    for number in right:
        spans = tuple((a, b) for n, a, b in example.spans if n == number)
        yield Reading(example.question, "", example.passages[number], True, spans)
    if wrong := [text for number, text in enumerate(example.passages) if number not in right]:
        yield Reading(example.question, "", rng.choice(wrong), False)


def batches(readings: Sequence[Reading], tokens: int, seed: int) -> list[list[Reading]]:
    """Of like length together, about so many tokens each, in random order."""
    rng = random.Random(seed)
    lengths = {id(r): (len(r.question) + len(r.section) + len(r.text)) / 3.6 + 8 for r in readings}
    found: list[list[Reading]] = [[]]
    for reading in sorted(readings, key=lambda r: lengths[id(r)] + 10 * rng.random()):
        if found[-1] and (len(found[-1]) + 1) * min(lengths[id(reading)], 272) > tokens:
            found.append([])
        found[-1].append(reading)
    rng.shuffle(found)
    return found
