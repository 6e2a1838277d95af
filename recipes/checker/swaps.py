"""Rows made from real supported claims by changing one word, number or name, which makes them unsupported."""

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random

from recipes.checker.names import words
from recipes.checker.rows import SUPPORTS, UNSUPPORTED, Row

PAIRS = [pair.split() for pair in words("opposites")]
TURN: dict[str, list[str]] = {}
for _left, _right in PAIRS:
    TURN.setdefault(_left, []).append(_right)
    TURN.setdefault(_right, []).append(_left)
NAME = re.compile(r"(?:[A-Z][\w'’.-]*[\w])(?: (?:of |the )?[A-Z][\w'’.-]*[\w])*")
NUMBER = re.compile(r"\d+(?:,\d{3})*")
VERB = re.compile(r" (was|is|were|are|has|had|have|can|could|will|did) (?!not)")

Swap = Callable[[Row, Sequence[str], Random], str | None]


def swaps(rows: Sequence[Row], share: float, rng: Random) -> Iterator[Row]:
    """For about `share` of the supported rows a false twin, and for a quarter of that a plainly true one."""
    names = sorted({name for row in rows for name in _names(row.claim)})
    for row in rows:
        if row.label != SUPPORTS:
            continue
        if rng.random() < share:
            order = rng.sample(SWAPS, len(SWAPS))
            claim = next((c for swap in order if (c := swap(row, names, rng)) and c != row.claim), None)
            if claim and claim.lower() not in row.evidence.lower():
                yield Row(claim, row.evidence, UNSUPPORTED)
        if rng.random() < share / 4:
            yield Row(_shortened(row.evidence, rng), row.evidence, SUPPORTS)


def _names(text: str) -> list[str]:
    return [name for name in NAME.findall(text) if len(name) > 2]


def _opposite(row: Row, _: Sequence[str], rng: Random) -> str | None:
    words = [word for word in TURN if re.search(rf"\b{word}\b", row.claim)]
    if not words:
        return None
    word = rng.choice(words)
    return re.sub(rf"\b{word}\b", rng.choice(TURN[word]), row.claim, count=1)


def _negation(row: Row, _: Sequence[str], rng: Random) -> str | None:
    if " not " in row.claim or " than " in row.claim or rng.random() < 0.5:
        return None
    return VERB.sub(r" \1 not ", row.claim, count=1)


def _number(row: Row, _: Sequence[str], rng: Random) -> str | None:
    if re.search(r"\b(than|least|most|over|under|about|nearly|almost|before|after)\b", row.claim):
        return None  # another number may still be true
    numbers = list(NUMBER.finditer(row.claim))
    if not numbers:
        return None
    match = rng.choice(numbers)
    value = int(match[0].replace(",", ""))
    other = (
        max(0, value + rng.choice((-10, -3, -2, -1, 1, 2, 3, 10)))
        if value < 2100
        else value + rng.randint(1, value)
    )
    return (
        row.claim[: match.start()]
        + (f"{other:,}" if "," in match[0] else str(other))
        + row.claim[match.end() :]
    )


def _name(row: Row, names: Sequence[str], rng: Random) -> str | None:
    """Another name, from the very evidence where it has one: the loser that stands beside the winner."""
    own = [name for name in _names(row.claim) if name in row.evidence]
    if not own:
        return None
    name = rng.choice(own)
    beside = [n for n in _names(row.evidence) if n not in row.claim and n.count(" ") == name.count(" ")]
    other = rng.choice(beside) if beside and rng.random() < 0.7 else rng.choice(names)
    return None if other in name or name in other else row.claim.replace(name, other)


def _shortened(evidence: str, rng: Random) -> str:
    """The evidence without its last clause, or whole: it supports itself."""
    cut = evidence.rfind(", ")
    return evidence[:cut] + "." if cut > 40 and rng.random() < 0.5 else evidence


SWAPS: list[Swap] = [_opposite, _opposite, _negation, _number, _name, _name]
