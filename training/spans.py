"""Names, numbers and words in a passage: what a question may ask about, and how rare it is in the corpus."""

import math
import re
from collections import Counter
from collections.abc import Sequence

__all__ = ["Rarity", "bare", "entities", "frame"]

_WORD = r"[^\W_][\w.\-]*(?:['’](?!s\b)\w+)*"
_NAME = rf"(?=[^\W_])(?![a-zß-öø-ÿ]){_WORD}"
_LINK = r"(?:(?:of|the|de|der|den|la|van|von|and|del|da|al|bin)\s+){0,2}"
ENTITY = re.compile(rf"(?<!\w){_NAME}(?:\s+{_LINK}{_NAME})*")
_SMALL = """
a an the of in on at to for from by with and or but is was were are be been as that this it its his her their
after before when while since during voters he she they there these those according although however if both
some many most all each such not no other
"""
SMALL = frozenset(_SMALL.split())


def bare(word: str) -> str:
    """A word without the punctuation around it."""
    return word.strip('.,;:?!"()[]“”‘«»')


def entities(passage: str) -> list[tuple[int, int]]:
    """(start, end) of every run of capitalised words and numbers, without a sentence's first small word."""
    found = []
    for match in ENTITY.finditer(passage):
        start, end = match.span()
        first = passage[start:end].split(" ")[0]
        if first.lower() in SMALL and start == 0:
            start += len(first)
            start += len(passage[start:end]) - len(passage[start:end].lstrip())
        end = start + len(passage[start:end].rstrip(".-"))
        if start < end:
            found.append((start, end))
    return found


def frame(passage: str) -> str:
    """The passage with a blank for each name and number."""
    found, at = "", 0
    for start, end in entities(passage):
        found, at = f"{found}{passage[at:start]}_", end
    return found + passage[at:]


class Rarity:
    """Inverse document frequency of words over the corpus' passages, case folded."""

    def __init__(self, passages: Sequence[str]) -> None:
        self.count = len(passages)
        self.frequency = Counter(word for passage in passages for word in self._words(passage))

    @staticmethod
    def _words(passage: str) -> set[str]:
        return {word for raw in passage.lower().split() if (word := bare(raw))}

    def idf(self, word: str) -> float:
        """log((n + 1) / (df + 1)) + 0.1, positive."""
        return math.log((self.count + 1) / (self.frequency[bare(word).lower()] + 1)) + 0.1

    def weight(self, span: str) -> float:
        """How much a span is worth asking about: the square of its rarest word's idf."""
        return max((self.idf(word) for word in span.split()), default=0.1) ** 2

    def repetition(self, passage: str) -> int:
        """How many passages state the fact of this one: the count of its rarest word."""
        return min((self.frequency[word] for word in self._words(passage)), default=1)
