"""What the reader learns from in an epoch: every question with its text, and texts that do not answer it."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from recipes.reader.example import Reading, around, without
from recipes.reader.prose import Prose
from recipes.reader.synth import Example, Synthesis

WORDS = (30, 60, 60, 100, 100, 150)  # lengths of texts cut out of articles
WHOLE = ("VitaminC", "manual")
NEAR = {"article": 0.4, "set": 0.4, "manual": 0.56, "VitaminC": 0.1}  # wrong texts for each right one
# Share of questions that are asked of their text without the sentences that answer, too.
REMOVED = {"article": 0.15, "set": 0.15, "manual": 0.15, "VitaminC": 0.0}
UNTITLED = 0.15  # share of texts without their headings
NEAREST = 0.85  # share of wrong texts that are like the question
CLAIMS, INVENTED, PROSE = 1000, 650, 400  # examples an epoch


def epoch(
    articles: Sequence[Reading],
    sets: Sequence[Reading],
    manuals: Sequence[Reading],
    claims: Sequence[Reading],
    seed: int,
) -> list[Reading]:
    """The examples of one epoch; another seed, another draw. `sets`: what datasets.draw drew for it."""
    rng = random.Random(seed)
    pool = [(r.section, r.text) for r in (*articles, *manuals) if r.answered]
    readings: list[Reading] = []
    for kind, group in (
        ("article", articles),
        ("set", sets),
        ("manual", manuals),
        ("VitaminC", rng.sample(claims, min(CLAIMS, len(claims)))),
    ):
        for reading in group:
            readings += _examples(reading, kind, pool, rng)
    invented, prose = Synthesis(seed, 0.4), Prose(seed)
    readings += (part for _ in range(INVENTED) for part in _read(invented.example(), rng))
    readings += (part for _ in range(PROSE) for part in _read(prose.example(), rng))
    return [replace(r, near=(), section="" if rng.random() < UNTITLED else r.section) for r in readings]


def _examples(
    reading: Reading, kind: str, pool: Sequence[tuple[str, str]], rng: random.Random
) -> Iterator[Reading]:
    if reading.text:
        order = (rng.random() < 0.5 for _ in itertools.count())
        words = rng.choice(WORDS)
        if kind == "set" and not reading.answered:
            yield replace(reading, text=_cut(reading.text, rng, words))
        elif kind in ("article", "set") and reading.answered:
            yield around(reading, words, order)
        else:
            yield reading
        if reading.answered and rng.random() < REMOVED[kind] and (rest := without(reading)):
            yield replace(rest, text=_cut(rest.text, rng)) if kind == "set" else rest
    # Sets have wrong texts of their own; a random one beside them would teach little.
    for _ in range(int(NEAR[kind] + rng.random()) if reading.near or kind != "set" else 0):
        if reading.near and rng.random() < NEAREST:
            section, text = reading.near[min(int(rng.expovariate(0.35)), len(reading.near) - 1)]
        else:
            section, text = rng.choice(pool)
        yield Reading(reading.question, section, _cut(text, rng), False)


def _cut(text: str, rng: random.Random, most: int = 0) -> str:
    """At most so many words in a row, of 0 as many as the texts cut out of articles have."""
    most = most or rng.choice(WORDS)
    words = text.split(" ")
    start = rng.randrange(max(1, len(words) - most + 1))
    return text if len(words) <= most else " ".join(words[start : start + most])


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
    groups: list[list[Reading]] = [[]]
    for reading in sorted(readings, key=lambda r: lengths[id(r)] + 10 * rng.random()):
        if groups[-1] and (len(groups[-1]) + 1) * min(lengths[id(reading)], 272) > tokens:
            groups.append([])
        groups[-1].append(reading)
    rng.shuffle(groups)
    return groups
