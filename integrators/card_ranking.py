"""Rank cards for a question by their profiles.

A profile is identified by the sha256 of its file: when cards are added, changed or removed, only new files are read.
"""

import io
import math
import zipfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcard import cache, text
from kcard.cards import profile as cards_profile
from kcard.cards.card import CardSet
from kcard.cards.profile import ROUTING, SCALE, Profile, profile_of, terms_of
from kcard.config import settings
from kcard.embedded.minilm import DIMENSIONS, SHA256
from kcard.errors import KcardError
from kcard.interfaces import Array, Relevance, valid
from kcard.selectors.relevance import Cosine, MiniLMRelevance
from kcard.types import Choice

MAX_CACHE_BYTES = 256_000_000  # 10,000 cards take 40 MB
MIN_CACHED_CARDS = 100  # packing fewer is faster than reading them from the cache
LATEST_KEY = cache.key("profiles", "latest")
CODE_FILES = (Path(__file__), Path(cards_profile.__file__), Path(text.__file__))

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Profiles:
    """The profiles of n cards.

    keys        what names each profile: the sha256 of routing.json; without one, language and description
    languages   of each card
    first       the centroids of card i are the rows first[i] to first[i + 1]; shape (n + 1,)
    centroids   int8, unit vectors times 127, shape (m, 384)
    vocabulary  the distinct terms of all cards, ascending, uint32, shape (v,)
    at          the cards that hold term j are holders[at[j] : at[j + 1]]; shape (v + 1,)
    holders     numbers of cards, int32
    """

    keys: npt.NDArray[np.str_]
    languages: npt.NDArray[np.str_]
    first: Ints
    centroids: npt.NDArray[np.int8]
    vocabulary: npt.NDArray[np.uint32]
    at: Ints
    holders: npt.NDArray[np.int32]

    @classmethod
    def of(cls, keys: Sequence[str], profiles: Sequence[Profile]) -> "Profiles":
        """Pack the profiles of cards, in order."""
        terms = np.concatenate([np.zeros(0, np.uint32), *(p.terms for p in profiles)])
        order = np.argsort(terms, kind="stable")
        vocabulary, starts = np.unique(terms[order], return_index=True)
        cards = np.arange(len(profiles), dtype=np.int32)
        return cls(
            np.array(keys, dtype=np.str_),
            np.array([p.language for p in profiles], dtype=np.str_),
            np.cumsum([0, *(len(p.centroids) for p in profiles)]),
            np.concatenate([np.zeros((0, DIMENSIONS), np.int8), *(p.centroids for p in profiles)]),
            vocabulary,
            np.append(starts, len(terms)),
            np.repeat(cards, [len(p.terms) for p in profiles])[order],
        )

    def by_key(self) -> dict[str, Profile]:
        """Return every profile by its key, unpacked."""
        order = np.argsort(self.holders, kind="stable")
        terms = np.repeat(self.vocabulary, np.diff(self.at))[order]
        ends = np.cumsum(np.bincount(self.holders, minlength=len(self.keys)))
        profiles = {}
        start = 0
        for i, end in enumerate(ends.tolist()):
            centroids = self.centroids[self.first[i] : self.first[i + 1]]
            profiles[str(self.keys[i])] = Profile(str(self.languages[i]), centroids, terms[start:end])
            start = end
        return profiles


def profiles_of(cards: CardSet, choices: Sequence[Choice]) -> Profiles:
    """Return the profiles of these cards of a pool. A card without routing.json has the words of its description, as
    has one whose file can't be read; that error is reported when the card is opened."""
    keys, languages = [], []
    for choice in choices:
        language, file = "en", ""
        if choice.name in cards:
            manifest = cards.manifest(choice.name)
            language, file = manifest.language, manifest.files.get(ROUTING, "")
        languages.append(language)
        keys.append(file or f"{language} {choice.description}")

    def make(i: int) -> Profile:
        name, description = choices[i].name, choices[i].description
        profile = None
        if name in cards and ROUTING in cards.manifest(name).files:
            read = cards.reader(name)
            with suppress(KcardError, OSError, UnicodeDecodeError):
                if read is not None:
                    profile = Profile.from_json(read(ROUTING).decode())
        return profile or profile_of(languages[i], [description])

    return pack_profiles(keys, make)


def profiles_of_descriptions(choices: Sequence[Choice]) -> Profiles:
    """Return profiles made from descriptions alone."""
    descriptions = [choice.description for choice in choices]
    return pack_profiles(descriptions, lambda i: profile_of("en", [descriptions[i]]))


def pack_profiles(keys: Sequence[str], make: Callable[[int], Profile]) -> Profiles:
    """Pack profiles; those of many cards are cached. `make`: called for those not in the cache."""
    limit = min(settings().cache_mb * 1_000_000, MAX_CACHE_BYTES)
    if not limit or len(keys) < MIN_CACHED_CARDS:
        return Profiles.of(keys, [make(i) for i in range(len(keys))])
    disk = cache.Cache(cache.folder() / "profiles.sqlite", limit)
    whole = cache.key("profiles", SHA256, cache.source_digest(*CODE_FILES), *keys)
    cached = _load_profiles(disk.read([whole]).get(whole))
    if cached is not None:
        return cached
    # Profiles that were packed last time are reused.
    by_key: dict[str, Profile] = {}
    pointer = disk.read([LATEST_KEY]).get(LATEST_KEY)
    if pointer is not None:
        latest = _load_profiles(disk.read([pointer]).get(pointer))
        if latest is not None:
            by_key = latest.by_key()
    own = [by_key.get(key) or make(i) for i, key in enumerate(keys)]
    profiles = Profiles.of(keys, own)
    stream = io.BytesIO()
    np.savez(stream, **{f.name: getattr(profiles, f.name) for f in fields(Profiles)})
    disk.write({whole: stream.getvalue(), LATEST_KEY: whole})
    return profiles


def _load_profiles(stored: bytes | None) -> Profiles | None:
    if stored is None:
        return None
    try:
        with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
            return Profiles(**{f.name: arrays[f.name] for f in fields(Profiles)})
    except (ValueError, KeyError, OSError, zipfile.BadZipFile):
        return None  # of another version


# Fitted on questions whose card is known (docs/results.md, "Choosing among ten thousand cards").
LEXICAL_WEIGHT = 0.26
COARSE_LEXICAL_WEIGHT = (
    0.4  # a mean vector tells less than the nearest centroid, so that words count for more
)
MIN_CANDIDATES = 200  # cards that are compared exactly
COARSE_DIMENSIONS = 96
MAX_READ_DESCRIPTIONS = 100  # descriptions that another selector than the cosine reads for a question
CARDS_AT_A_TIME = 512  # cards whose means are computed at a time


class CardIndex:
    """Scores cards by their descriptions and profiles: score = nearest + LEXICAL_WEIGHT * covered.

    nearest   the highest cosine of the question with the card's description and its centroids (cards/profile.py)
    covered   the share of the question's words that the card holds, each weighted by how few cards hold it (BM25's idf)

    Of many cards only MIN_CANDIDATES are compared exactly: those that fit best by their mean vector, in
    COARSE_DIMENSIONS.

    relevance  scores the descriptions; of the offline selectors only the cosine is used, because covered words take the
               place of the agreement of numbers
    """

    def __init__(self, relevance: Relevance, descriptions: Sequence[str], profiles: Profiles) -> None:
        self._descriptions, self._profiles = descriptions, profiles
        self._relevance: Relevance | None = relevance
        if isinstance(relevance, MiniLMRelevance | Cosine):
            self._relevance = None
        count = len(descriptions)
        described = np.rint(cache.matrix(descriptions) * SCALE).astype(np.int8)
        self._rows = np.insert(profiles.centroids, profiles.first[:-1], described, axis=0)
        self._first = profiles.first + np.arange(count + 1)
        frequencies = np.diff(profiles.at)
        self._idf = np.log1p((count - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
        self._unknown = float(np.log1p((count + 0.5) / 0.5))
        self._languages = {}
        for name in np.unique(profiles.languages):
            self._languages[str(name)] = profiles.languages == name
        self._means: tuple[Array, Array] | None = None
        if count > MIN_CANDIDATES:
            # The directions in which the cards' mean vectors differ most, shape (384, COARSE_DIMENSIONS), and the
            # means projected on them, shape (n, COARSE_DIMENSIONS).
            means = np.empty((count, DIMENSIONS), np.float32)
            for start in range(0, count, CARDS_AT_A_TIME):
                first = self._first[start : start + CARDS_AT_A_TIME + 1]
                rows = self._rows[first[0] : first[-1]].astype(np.float32)
                means[start : start + CARDS_AT_A_TIME] = np.add.reduceat(rows, first[:-1] - first[0])
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
            basis = np.ascontiguousarray(np.linalg.eigh(means.T @ means)[1][:, -COARSE_DIMENSIONS:])
            self._means = basis, means @ basis

    def __call__(self, text: str, most: int = MIN_CANDIDATES) -> tuple[Ints, Array]:
        """Return the numbers of at least `most` cards, or of all if there are fewer, and their scores, best first; of
        equal ones the earlier first."""
        vector, covered = cache.embed([text])[0], self._covered(text)
        cards = self._candidates(vector, covered, most)
        scores = self._scores(cards, vector, covered)
        order = np.argsort(-scores, kind="stable")
        cards, scores = cards[order], scores[order]
        if self._relevance is None:
            return cards, scores
        read = np.sort(cards[:MAX_READ_DESCRIPTIONS])
        relevance = self._relevance.scores(text, [self._descriptions[i] for i in read])
        scores = self._scores(read, vector, covered, relevance)
        order = np.argsort(-scores, kind="stable")
        behind = cards[MAX_READ_DESCRIPTIONS:]
        return np.append(read[order], behind), np.append(scores[order], np.full(len(behind), scores.min()))

    def _scores(self, cards: Ints, vector: Array, covered: Array, near: Array | None = None) -> Array:
        """Score some cards; `near`: a selector's scores of their descriptions, which replace the cosines."""
        counts = np.diff(self._first)[cards]
        ends = np.cumsum(counts)
        starts = ends - counts
        places = np.arange(ends[-1]) + np.repeat(self._first[cards] - starts, counts)
        cosines = self._rows[places].astype(np.float32) @ vector / SCALE
        if near is not None:
            cosines[starts] = near
        scores: Array = np.maximum.reduceat(cosines, starts) + LEXICAL_WEIGHT * covered[cards]
        return scores

    def _covered(self, text: str) -> Array:
        """Return the weighted share of the text's words that each card holds, shape (n,), in [0, 1]."""
        count, packed = len(self._first) - 1, self._profiles
        shares = np.zeros(count, np.float32)
        for language, speaks in self._languages.items():
            terms = np.fromiter(terms_of(text, language), np.uint32)
            places = np.searchsorted(packed.vocabulary, terms)
            weights, total = np.zeros(count, np.float32), 0.0
            for term, place in zip(terms.tolist(), places.tolist(), strict=True):
                if place < len(packed.vocabulary) and packed.vocabulary[place] == term:
                    total += float(self._idf[place])
                    weights[packed.holders[packed.at[place] : packed.at[place + 1]]] += self._idf[place]
                else:
                    total += self._unknown
            if total:
                weights /= total
            shares[speaks] = weights[speaks]
        return shares

    def _candidates(self, vector: Array, covered: Array, most: int) -> Ints:
        """Return the numbers of the cards that are compared exactly, ascending."""
        count, enough = len(covered), max(MIN_CANDIDATES, most)
        if self._means is None or count <= enough:
            return np.arange(count)
        basis, means = self._means
        guess = means @ (vector @ basis) + COARSE_LEXICAL_WEIGHT * covered
        return np.sort(np.argpartition(-guess, enough)[:enough])


# The probability that a question's best card is right is logistic in its score: 1/2 at EVEN_SCORE, with this slope.
EVEN_SCORE, LOGISTIC_SLOPE = 0.715, 13.5


class CardRanker:
    """Ranks cards by description and profile, which are read at the first call.

    `profiles`: returns those of the cards, in order; None: only their descriptions are known.
    """

    def __init__(
        self,
        relevance: Relevance,
        cards: Sequence[Choice],
        profiles: Callable[[Sequence[Choice]], Profiles] | None = None,
    ) -> None:
        self._relevance = relevance
        self._cards = cards
        self._profiles = profiles or profiles_of_descriptions
        self._index: CardIndex | None = None

    def __call__(
        self, text: str, most: int, without: Collection[str] = (), margin: float = math.inf
    ) -> tuple[Choice, ...]:
        """Return at most `most` cards, best first, without those named in `without`; of equal ones the earlier first.
        `margin`: after the best card only those whose score is less than this below the best score."""
        if len(self._cards) == 1:
            return tuple(card for card in self._cards[:most] if card.name not in without)
        numbers, scores = self._open_index()(text, most + len(without))
        ranked = []
        for number, score in zip(numbers.tolist(), scores.tolist(), strict=True):
            if self._cards[number].name not in without:
                ranked.append((self._cards[number], score))
        return nearly_best(ranked[:most], margin)

    def best(self, text: str) -> tuple[Choice, float]:
        """Return the best card and the probability in [0, 1] that it answers the question if any card does."""
        cards, scores = self._open_index()(text, 1)
        return self._cards[cards[0]], float(1 / (1 + np.exp(LOGISTIC_SLOPE * (EVEN_SCORE - scores[0]))))

    def _open_index(self) -> CardIndex:
        if self._index is None:
            descriptions = [card.description for card in self._cards]
            self._index = CardIndex(self._relevance, descriptions, self._profiles(self._cards))
        return self._index


class DescriptionRanker(CardRanker):
    """Ranks cards by the relevance selector's scores of their descriptions, and nothing else (Knowledge Card, 2.3)."""

    def __call__(
        self, text: str, most: int, without: Collection[str] = (), margin: float = math.inf
    ) -> tuple[Choice, ...]:
        offered = [card for card in self._cards if card.name not in without]
        if not offered:
            return ()
        scores = self._relevance.scores(text, [card.description for card in offered])
        scores = valid(scores, len(offered), (-1.0, 1.0), f"relevance {type(self._relevance).__name__}")
        best = np.argsort(-scores, kind="stable")[:most].tolist()
        return nearly_best([(offered[i], float(scores[i])) for i in best], margin)


def nearly_best(ranked: Sequence[tuple[Choice, float]], margin: float) -> tuple[Choice, ...]:
    """Return the best card, and after it those whose score is less than `margin` below its own."""
    cards: list[Choice] = []
    for card, score in ranked:
        if not cards or score > ranked[0][1] - margin:
            cards.append(card)
    return tuple(cards)
