"""Held-out questions: what the exam asks, and training never does.

Of all questions in the world half is held out, by the sha256 of their words: a pseudo-query that falls into it is
drawn again, a question of study material that does is learned with a few words before it, and the exam asks only
questions that do, whatever its seed and the card's; one that does not is asked with a few words before it.

Pseudo-queries (pseudo_queries.py) put a question word, the rest of the passage and noised words in order. The
frames here stand around the gap instead, in words that no pseudo-query holds, so that an exam in them tells
recall from having seen the question.
"""

import hashlib
from dataclasses import dataclass
from random import Random

from kcard.sampling import derive_seed
from kcard.training.spans import Rarity, bare, entities
from kcard.words import words

__all__ = [
    "FRAMES",
    "GapQuestion",
    "around",
    "gaps",
    "held_out",
    "held_out_wording",
    "is_held_out",
    "trained_wording",
]

HELD_OUT = 2  # one in so many questions
LEADS = (
    "",
    "Tell me: ",
    "I wonder: ",
    "Do you know: ",
    "Please tell me: ",
    "Quick question: ",
    "So: ",
    "Well: ",
)

FRAMES = (
    "Fill in the gap: {before} ____ {after}.",
    "Somebody or something is left out here, please supply it: {before} [...] {after}",
    "I recall that {before} *** {after}, yet the *** escapes me.",
    "According to our records, {before} so-and-so {after}. So-and-so stands for…",
    "{before} — blank — {after}; blank equals?",
    "Could anybody remind me of the omitted bit in “{before} … {after}”?",
)


@dataclass(frozen=True)
class GapQuestion:
    """A question on `passage` whose expected `answer` is a span of it; `around`: what stands before and after it."""

    text: str
    answer: str
    passage: str
    around: tuple[str, str] = ("", "")


def is_held_out(question: str) -> bool:
    """Whether a question is one that training never asks, by its words, case and punctuation aside."""
    digest = hashlib.sha256(" ".join(words(question)).encode()).digest()
    return digest[0] % HELD_OUT == 0


def held_out_wording(question: str) -> str:
    """The question where it is held out, else with the first of LEADS with which it is; empty where it is with none."""
    return next((text for lead in LEADS if is_held_out(text := lead + question)), "")


def trained_wording(question: str) -> str:
    """The question where no exam asks it, else with the first of LEADS with which none does; empty where all do."""
    return next((text for lead in LEADS if not is_held_out(text := lead + question)), "")


def held_out(passage: str, seed: int, rarity: Rarity | None = None) -> GapQuestion | None:
    """A question in a held-out form, the same for the same passage and seed.

    The answer is a name or number that occurs once in the passage, drawn by its weight in `rarity`, without
    which names go before numbers. None where the passage has no such span or nothing else.
    """
    rng = Random(derive_seed("held-out", seed, passage))
    spans = gaps(passage)
    if not spans:
        return None
    start, end = rng.choices(spans, [_weight(passage[a:b], rarity) for a, b in spans])[0]
    before, after = around(passage, start, end)
    text = rng.choice(FRAMES).format(before=before, after=after)
    return GapQuestion(_tidy(text), bare(passage[start:end]), passage, (before, after))


def gaps(passage: str) -> list[tuple[int, int]]:
    """(start, end) of all that can be asked for: names and numbers that occur once in the passage."""
    return [
        (start, end)
        for start, end in entities(passage)
        if passage.count(passage[start:end]) == 1 and len(passage) - (end - start) > 10
    ]


def around(passage: str, start: int, end: int) -> tuple[str, str]:
    """What a question says before and after the gap: passages with the same make the same questions."""
    before = " ".join(passage[:start].split())
    return before, " ".join(passage[end:].split()).rstrip(".!?…")


def _weight(span: str, rarity: Rarity | None) -> float:
    if rarity is not None:
        return rarity.weight(span)
    return 1.0 if any(letter.isalpha() for letter in span) else 0.1


def _tidy(text: str) -> str:
    """One blank between words, none before a closing mark or a possessive."""
    text = " ".join(text.split())
    for mark in (".", ",", ";", "'s", "’s"):
        text = text.replace(f" {mark} ", f"{mark} ")
    return text.replace(" .", ".").lstrip("— ")
