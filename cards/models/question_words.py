"""The words of a question: as a vector for cards with an encoder prefix, and in the vocabulary of a card's corpus."""

import functools
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np

from kcard.embedded import minilm
from kcard.errors import CardError
from kcard.interfaces import Array
from kcard.io import write_text
from kcard.text import ORDINALS, analyzer, words

# The words of a question as a fixed-size vector, which a card with an encoder prefix gets along with its embedding.
#
# A sentence embedding blurs names and rare words, by which BM25 finds a passage. Each stem of the corpus is hashed
# to random signs in SIZE dimensions; a question is the idf-weighted sum of its stems' signs, scaled to unit
# length: a random projection of its tf-idf vector (Achlioptas, 2003, "Database-friendly random projections").
# Words that are not in the corpus are ignored.

WORDS = "words.json"
SIZE = 512  # bits of the longest BLAKE2b digest
STEMMER = "english"  # the sentence encoder's language


@dataclass(frozen=True)
class WordSketch:
    """Questions as vectors. `idf`: the inverse document frequency of every stem of the corpus."""

    idf: Mapping[str, float]

    @classmethod
    def of_corpus(cls, texts: Sequence[str]) -> "WordSketch":
        """Compute idf as in BM25 (Lucene's) over `texts`."""
        frequency = Counter[str]()
        for text in texts:
            frequency.update(stems(text))
        count = len(texts)
        idf = {}
        for stem, n in sorted(frequency.items()):
            idf[stem] = round(math.log(1 + (count - n + 0.5) / (n + 0.5)), 4)
        return cls(idf)

    @classmethod
    def read(cls, folder: Path) -> "WordSketch":
        """Load the sketch of a card. Raises CardError if its file is damaged or missing."""
        path = folder / WORDS
        try:
            idfs = json.loads(path.read_text(encoding="utf-8"))["idf"]
            return cls({str(stem): float(idf) for stem, idf in idfs.items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{path} must hold the idf of the card's word stems ({error}): train the card again"
            raise CardError(message) from error

    def write(self, folder: Path) -> None:
        text = json.dumps({"stemmer": STEMMER, "idf": dict(self.idf)}, ensure_ascii=False, indent=0)
        write_text(folder / WORDS, f"{text}\n")

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The index of each stem in the order of `idf`."""
        return {stem: place for place, stem in enumerate(self.idf)}

    def numbers_of(self, text: str) -> list[int]:
        """Return the indices of the distinct stems of a text that are in the corpus, ascending."""
        return sorted(self.number[stem] for stem in stems(text) if stem in self.number)

    def signs(self) -> Array:
        """Return each stem's signs, (stems, SIZE), unit length."""
        return np.stack([_signs(stem) for stem in self.idf])

    def __call__(self, texts: Sequence[str]) -> Array:
        """Sketch `texts` as unit vectors, (n, SIZE); zeros for a text without a known word."""
        sketches = np.zeros((len(texts), SIZE), dtype=np.float32)
        for row, text in zip(sketches, texts, strict=True):
            shared = sorted(stems(text) & self.idf.keys())
            if shared:
                weights = np.array([self.idf[stem] for stem in shared], dtype=np.float32)
                row[:] = weights @ np.stack([_signs(stem) for stem in shared]) / np.linalg.norm(weights)
        return sketches


def stems(text: str) -> set[str]:
    return set(analyzer(STEMMER)(text))


@functools.lru_cache(maxsize=20_000)
def _signs(stem: str) -> Array:
    digest = hashlib.blake2b(stem.encode(), digest_size=SIZE // 8).digest()
    bits = np.unpackbits(np.frombuffer(digest, np.uint8)).astype(np.float32)
    signs: Array = (2 * bits - 1) / np.float32(math.sqrt(SIZE))
    return signs


# Rewords a question with the vocabulary that a card was trained on.
#
# A small model does not know words missing from its corpus: if the corpus says "chose" and "5th", it can't read "pick"
# and "fifth". Such words are replaced by the nearest corpus word by the sentence encoder's word embeddings, or dropped,
# as words were dropped from the questions that the card was trained on.

VOCABULARY = "vocabulary.json"
MIN_PASSAGES = 5  # with a word, for it to be a replacement
MIN_COSINE = 0.6  # of words that count as equivalent: plurals, inflected verbs, synonyms
FIGURES = ORDINALS | {
    "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "eleven": "11", "twelve": "12",
}  # fmt: skip
OTHER_SPELLINGS = FIGURES | {figure: word for word, figure in FIGURES.items()}


@dataclass(frozen=True)
class Vocabulary:
    """`all_words`: every word that the card was trained on, in lower case; `common`: possible replacements for others:
    no names, no figures."""

    all_words: frozenset[str]
    common: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str], asking: Iterable[str]) -> "Vocabulary":
        """Collect the words of passages and those of the questions about them (`asking`)."""
        count = Counter[str]()  # passages with the word
        written = Counter[str]()  # passages with the word spelled exactly so
        for text in texts:
            count.update(set(words(text)))
            written.update(set(re.findall(r"[^\W\d_]+", text)))
        common = []
        for word, passages in count.items():
            # Leave out names, which are seldom written in small letters.
            if passages >= MIN_PASSAGES and written[word] * 2 > passages:
                common.append(word)
        return cls(frozenset(count) | frozenset(asking), tuple(sorted(common)))

    @classmethod
    def read(cls, folder: Path) -> "Vocabulary | None":
        """Load a card's vocabulary; None if it has none."""
        path = folder / VOCABULARY
        if not path.is_file():
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(frozenset((*data["common"], *data["other"])), tuple(data["common"]))

    def write(self, folder: Path) -> None:
        other = sorted(self.all_words.difference(self.common))
        text = json.dumps({"common": self.common, "other": other}, ensure_ascii=False, indent=0)
        write_text(folder / VOCABULARY, f"{text}\n")

    def reword(self, question: str) -> str:
        """Return the question in words of the corpus; unchanged if none of its words is known."""
        tokens = question.split()
        reworded = [self._reword_token(token) for token in tokens]
        # Names are runs of capitalized words, excluding the first word of the question.
        start = 1
        for capital, run in groupby(tokens[1:], lambda token: token[0].isupper()):
            end = start + sum(1 for _ in run)
            if capital and None in reworded[start:end]:  # drop a name entirely unless all of it is known
                reworded[start:end] = [None] * (end - start)
            start = end
        return " ".join(token for token in reworded if token) or question

    def _reword_token(self, token: str) -> str | None:
        """Return the replacement of a token; None to drop it. Figures stay, since another year is another question."""
        parts = words(token)
        if not parts or any(part in self.all_words for part in parts):
            return token
        if len(parts) == 1 and parts[0] in OTHER_SPELLINGS:
            other = OTHER_SPELLINGS[parts[0]]
            if other in self.all_words:
                return token.lower().replace(parts[0], other)
            return token
        if any(part[0].isdigit() for part in parts):
            return token
        if len(parts) > 1 or token[0].isupper() or not self.common:
            return None
        # Choose the common word nearest in meaning.
        cosines = self.common_vectors @ minilm.word_vectors(parts)[0]
        best = int(cosines.argmax())
        if cosines[best] < MIN_COSINE:
            return None
        return self.common[best]

    @cached_property
    def common_vectors(self) -> Array:
        """The word embeddings of `common`, shape (words, 384)."""
        return minilm.word_vectors(self.common)
