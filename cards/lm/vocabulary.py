"""A question in the words that a card was trained on.

A small model does not know words that its corpus lacks: where the corpus says "chose" and "5th", it can't read "pick"
and "fifth". Such words are replaced by the corpus' word that is nearest by the sentence encoder's word embeddings, or
left out, as words were left out of the questions that the card was trained on.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from kcard import encoder
from kcard.files import write_text
from kcard.numbers import ORDINALS
from kcard.protocols import Array
from kcard.words import words

__all__ = ["VOCABULARY", "Vocabulary"]

VOCABULARY = "vocabulary.json"
COMMON = 5  # passages that hold a word which others are replaced by
NEAR = 0.6  # cosine, above which words mean the same: plurals, other forms of a verb, synonyms
FIGURES = ORDINALS | {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "eleven": "11", "twelve": "12",
}  # fmt: skip
SAME = FIGURES | {figure: word for word, figure in FIGURES.items()}


@dataclass(frozen=True)
class Vocabulary:
    """known   every word that the card was trained on, in lower case
    common  those that others may be replaced by: no names, no figures"""

    known: frozenset[str]
    common: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str], asking: Iterable[str]) -> "Vocabulary":
        """The words of passages, and those that the questions about them were asked in."""
        count, written = Counter[str](), Counter[str]()
        for text in texts:
            count.update(set(words(text)))
            written.update(set(re.findall(r"[^\W\d_]+", text)))
        common = (word for word, n in count.items() if n >= COMMON and written[word] * 2 > n)
        return cls(frozenset(count) | frozenset(asking), tuple(sorted(common)))

    @classmethod
    def read(cls, folder: Path) -> "Vocabulary | None":
        """Of the card in a folder; None where it has none."""
        path = folder / VOCABULARY
        if not path.is_file():
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(frozenset((*found["common"], *found["other"])), tuple(found["common"]))

    def write(self, folder: Path) -> None:
        other = sorted(self.known.difference(self.common))
        text = json.dumps({"common": self.common, "other": other}, ensure_ascii=False, indent=0)
        write_text(folder / VOCABULARY, f"{text}\n")

    def reworded(self, question: str) -> str:
        """The question in known words; as it is where none of its words is known."""
        tokens = question.split()
        found = [self._token(token) for token in tokens]
        for start, end in _names(tokens):
            if None in found[start:end]:  # of a name that is not known as a whole no part is meant
                found[start:end] = [None] * (end - start)
        return " ".join(token for token in found if token) or question

    def _token(self, token: str) -> str | None:
        """What stands for it; None where it is left out. Figures stay: another year is another question."""
        parts = words(token)
        if not parts or any(part in self.known for part in parts):
            return token
        if len(parts) == 1 and (same := SAME.get(parts[0])):
            return token.lower().replace(parts[0], same) if same in self.known else token
        if any(part[0].isdigit() for part in parts):
            return token
        return None if len(parts) > 1 or token[0].isupper() else self._nearest(parts[0])

    def _nearest(self, word: str) -> str | None:
        cosines = self._vectors @ encoder.word_vectors([word])[0]
        best = int(cosines.argmax()) if self.common else -1
        return self.common[best] if self.common and cosines[best] >= NEAR else None

    @cached_property
    def _vectors(self) -> Array:
        """(common, 384)"""
        return encoder.word_vectors(self.common)


def _names(tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """(start, end) of runs of capitalised words, but for the first word of the question."""
    start = 1
    for capital, run in groupby(tokens[1:], lambda token: token[0].isupper()):
        end = start + sum(1 for _ in run)
        if capital:
            yield start, end
        start = end
