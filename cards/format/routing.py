"""routing.json: what a card's corpus and exam tell of the questions that it answers, by which it is chosen among many.

    {"format": 1, "language": "en", "encoder": NAME, "encoder_sha256": SHA256, "centroids": BASE64, "terms": BASE64}

centroids  int8, shape (k, 384): unit vectors times 127, the k-means centroids of the corpus' passages and, after an
           exam, of the questions that the card answered right. LoRAUTER (arXiv 2601.21795, section 3) represents an
           adapter by the questions of such a validation set. None where the card's language is not the encoder's
terms      uint32, little-endian, ascending: CRC-32 of the stems that most passages hold, at most TERMS of them

A card that travels with hashes of its passages has no such file: the terms would tell what the passages hold.
"""

import binascii
import json
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard import encoder
from kcard.counts import check_profile
from kcard.errors import CardError
from kcard.json_values import parse
from kcard.protocols import Array
from kcard.words import analyzer, small_words, stemmer_of

__all__ = ["ROUTING", "Profile", "profile_of", "terms_of"]

ROUTING = "routing.json"
FORMAT = 1
SCALE = 127
CENTROIDS = 16  # of each set of vectors
TERMS = 2048
ITERATIONS = 15

Terms = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Profile:
    """What a card is about. `centroids`: int8, shape (k, 384); `terms`: ascending, shape (t,)."""

    language: str
    centroids: npt.NDArray[np.int8]
    terms: Terms

    def to_json(self) -> str:
        data = {
            "format": FORMAT,
            "language": self.language,
            "encoder": encoder.NAME,
            "encoder_sha256": encoder.SHA256,
            "centroids": b64encode(self.centroids.tobytes()).decode(),
            "terms": b64encode(self.terms.astype("<u4").tobytes()).decode(),
        }
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Profile | None":
        """None for one of a later format or another encoder. Raises CardError where it is none."""
        try:
            data: dict[str, Any] = parse(text)
            if data["format"] != FORMAT or data["encoder_sha256"] != encoder.SHA256:
                return None
            check_profile(data)
            rows = np.frombuffer(b64decode(data["centroids"], validate=True), np.int8)
            terms = np.frombuffer(b64decode(data["terms"], validate=True), "<u4").astype(np.uint32)
            return cls(str(data["language"]), rows.reshape(-1, encoder.DIMENSIONS), np.unique(terms))
        except (ValueError, TypeError, KeyError, binascii.Error) as error:
            raise CardError(
                f"{ROUTING} is damaged: {error!r}: examine the card again (kcard exam)"
            ) from error


def profile_of(language: str, texts: Iterable[str], *vectors: Array) -> Profile:
    """The profile of a corpus of `texts`. `vectors`: sets of unit vectors, shapes (n, 384), such as those of the
    passages and of answered questions; each set has centroids of its own.

    The same arguments give the same profile.
    """
    found = [np.zeros((0, encoder.DIMENSIONS), np.float32), *map(_centroids, vectors)]
    rows = np.rint(np.concatenate(found) * SCALE).astype(np.int8)
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(terms_of(text, language))
    frequent = sorted(counts, key=lambda term: (-counts[term], term))[:TERMS]
    return Profile(language, rows, np.array(sorted(frequent), np.uint32))


def terms_of(text: str, language: str) -> frozenset[int]:
    """The stems of a text, each as its CRC-32, without those of the language's small words."""
    stems = analyzer(stemmer_of(language))(text)
    return frozenset(zlib.crc32(stem.encode()) for stem in stems) - _small(language)


@cache
def _small(language: str) -> frozenset[int]:
    stems = analyzer(stemmer_of(language))
    return frozenset(zlib.crc32(stem.encode()) for word in small_words(language) for stem in stems(word))


def _centroids(vectors: Array) -> Array:
    """Spherical k-means: CENTROIDS unit vectors, shape (k, 384), fewer where there are no more distinct vectors.

    It begins with the vector nearest to the mean and then, each time, the one that is farthest from all centroids.
    """
    if not len(vectors):
        return vectors
    rows = [int(np.argmax(vectors @ vectors.mean(axis=0)))]
    nearest = vectors @ vectors[rows[0]]
    while len(rows) < min(CENTROIDS, len(vectors)) and nearest.min() < 1 - 1e-5:
        rows.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, vectors @ vectors[rows[-1]])
    found = vectors[rows]
    for _ in range(ITERATIONS):
        members = np.argmax(vectors @ found.T, axis=1)
        sums = (members == np.arange(len(found))[:, None]).astype(np.float32) @ vectors
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        found = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), found)
    return found
