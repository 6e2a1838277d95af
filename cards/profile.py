"""routing.json: a profile of a card's topics, by which cards are selected for a question.

    {"format": 1, "language": "en", "encoder": NAME, "encoder_sha256": SHA256, "centroids": BASE64, "terms": BASE64}

centroids  int8, shape (k, 384): unit vectors times 127, the k-means centroids of the corpus' passages and, after an
           exam, of the questions that the card answered correctly. LoRAUTER (arXiv 2601.21795, section 3) represents
           an adapter by the questions of such a validation set. Empty (k = 0) if the card is not in English
terms      uint32, little-endian, ascending: CRC-32 of the stems found in the most passages, at most MAX_TERMS of them

A card that ships only hashes of its passages has no such file: the terms would reveal the passages' content.
"""

import binascii
import json
import math
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard.cards.passages import passages
from kcard.embedded import minilm
from kcard.errors import CardError
from kcard.interfaces import Array
from kcard.io import parse, write_text
from kcard.manifest import Manifest, check_profile
from kcard.text import analyzer, is_english, small_words, stemmer_of

ROUTING = "routing.json"
FORMAT = 1
SCALE = 127
MAX_CENTROIDS = 16  # of each set of vectors
MAX_TERMS = 2048
KMEANS_ITERATIONS = 15
# Of a larger corpus, that many evenly spread passages are counted or embedded.
MAX_COUNTED_PASSAGES = 20_000
MAX_EMBEDDED_PASSAGES = 64
MAX_EMBEDDED_TOKENS = 4096  # of all embedded passages together

Terms = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Profile:
    """The topics of a card. `centroids`: int8, shape (k, 384); `terms`: ascending, shape (t,)."""

    language: str
    centroids: npt.NDArray[np.int8]
    terms: Terms

    def to_json(self) -> str:
        data = {
            "format": FORMAT,
            "language": self.language,
            "encoder": minilm.NAME,
            "encoder_sha256": minilm.SHA256,
            "centroids": b64encode(self.centroids.tobytes()).decode(),
            "terms": b64encode(self.terms.astype("<u4").tobytes()).decode(),
        }
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Profile | None":
        """Parse routing.json; None for another format or encoder. Raises CardError if it is damaged."""
        try:
            data: dict[str, Any] = parse(text)
            if data["format"] != FORMAT or data["encoder_sha256"] != minilm.SHA256:
                return None
            check_profile(data)
            rows = np.frombuffer(b64decode(data["centroids"], validate=True), np.int8)
            terms = np.frombuffer(b64decode(data["terms"], validate=True), "<u4").astype(np.uint32)
            return cls(str(data["language"]), rows.reshape(-1, minilm.DIMENSIONS), np.unique(terms))
        except (ValueError, TypeError, KeyError, binascii.Error) as error:
            raise CardError(
                f"{ROUTING} is damaged: {error!r}: examine the card again (kcard exam)"
            ) from error


def profile_of(language: str, texts: Iterable[str], *vectors: Array) -> Profile:
    """Return the profile of a corpus; equal arguments give equal profiles.

    texts    whose terms are counted
    vectors  sets of unit vectors, each of shape (n, 384), such as those of the passages and of answered questions;
             each set gets its own centroids
    """
    centroids = [np.zeros((0, minilm.DIMENSIONS), np.float32), *map(_find_centroids, vectors)]
    rows = np.rint(np.concatenate(centroids) * SCALE).astype(np.int8)
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(terms_of(text, language))
    frequent = sorted(counts, key=lambda term: (-counts[term], term))[:MAX_TERMS]
    return Profile(language, rows, np.array(sorted(frequent), np.uint32))


def terms_of(text: str, language: str) -> frozenset[int]:
    """Return the CRC-32s of a text's stems, excluding those of the language's small words."""
    stems = analyzer(stemmer_of(language))(text)
    return frozenset(zlib.crc32(stem.encode()) for stem in stems) - small_terms(language)


@cache
def small_terms(language: str) -> frozenset[int]:
    """Return the terms of a language's small words."""
    stems: set[str] = set()
    for word in small_words(language):
        stems.update(analyzer(stemmer_of(language))(word))
    return frozenset(zlib.crc32(stem.encode()) for stem in stems)


def _find_centroids(vectors: Array) -> Array:
    """Run spherical k-means. Return at most MAX_CENTROIDS unit vectors, shape (k, 384)."""
    if not len(vectors):
        return vectors
    # Start from the vector nearest to the mean, and add the one farthest from all so far.
    rows = [int(np.argmax(vectors @ vectors.mean(axis=0)))]
    nearest = vectors @ vectors[rows[0]]
    while len(rows) < min(MAX_CENTROIDS, len(vectors)) and nearest.min() < 1 - 1e-5:
        rows.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, vectors @ vectors[rows[-1]])
    centroids = vectors[rows]
    for _ in range(KMEANS_ITERATIONS):
        nearest_centroids = np.argmax(vectors @ centroids.T, axis=1)
        is_member = nearest_centroids == np.arange(len(centroids))[:, None]
        sums = is_member.astype(np.float32) @ vectors
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centroids = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centroids)
    return centroids


def write_profile(folder: Path, manifest: Manifest, answered: Sequence[str] = ()) -> None:
    """Write routing.json, or remove it if the card ships no text of the corpus. The file is not sealed.

    answered  questions that the card answered correctly; only centroids and hashed words of them are stored

    Raises CardError if the passages can't be read.
    """
    sources = passages(folder)
    if not len(sources):
        (folder / ROUTING).unlink(missing_ok=True)
        return
    count_step = math.ceil(len(sources) / MAX_COUNTED_PASSAGES)
    texts = (passage.in_context for passage in sources[::count_step])
    vectors: list[Array] = []
    if is_english(manifest.language):
        embed_step = math.ceil(len(sources) / MAX_EMBEDDED_PASSAGES)
        spread = [passage.in_context for passage in sources[::embed_step]]
        tokens_per_passage = MAX_EMBEDDED_TOKENS // len(spread)
        vectors.append(minilm.embed(spread, min(minilm.MAX_TOKENS, tokens_per_passage)))
        if answered:
            vectors.append(minilm.embed(answered))
    profile = profile_of(manifest.language, chain([manifest.description], texts, answered), *vectors)
    write_text(folder / ROUTING, profile.to_json())
