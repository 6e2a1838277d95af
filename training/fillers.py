"""Filler words: what a question may say that the corpus does not, to be overlooked by the card."""

import functools
import re
from collections.abc import Collection

from kcard.training.question_forms import FRAMES

__all__ = ["english", "fillers"]

WORDS = 6000


@functools.cache
def english() -> tuple[str, ...]:
    """The most frequent English words, by the order of the sentence encoder's vocabulary, without those of
    the held-out question forms."""
    from kcard import minilm

    held_out = set(re.findall(r"[a-z]+", " ".join(FRAMES).lower()))
    vocabulary = minilm.words().vocabulary()
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    words = [word for word in ordered if re.fullmatch(r"[a-z]{2,12}", word) and word not in held_out]
    return tuple(words[:WORDS])


def fillers(used: Collection[str]) -> tuple[str, ...]:
    """English words that the corpus does not use: a word that it uses would mean something."""
    return tuple(word for word in english() if word not in used)
