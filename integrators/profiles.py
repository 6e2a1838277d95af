"""The profiles of a pool's cards (cards/format/routing.py) as a few arrays, kept in the cache.

A profile is named by the sha256 of its file: when cards come, change or go, only new files are read.
"""

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcard import cache, words
from kcard.cards.format import routing
from kcard.cards.format.folder import CardSet
from kcard.cards.format.routing import ROUTING, Profile, profile_of
from kcard.config import settings
from kcard.encoder import DIMENSIONS, SHA256
from kcard.errors import KcardError
from kcard.request import Choice

__all__ = ["Profiles", "described", "packed", "profiles_of"]

SIZE = 256_000_000  # bytes of the cache's file; 10,000 cards take 40 MB
MANY = 100  # cards; fewer are packed sooner than they are read from the cache
LATEST = cache.key("profiles", "latest")
CODE = (Path(__file__), Path(routing.__file__), Path(words.__file__))

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
        """Those of cards, in order."""
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

    def known(self) -> dict[str, Profile]:
        """Every profile by its key, as it was before it was packed."""
        order = np.argsort(self.holders, kind="stable")
        terms = np.repeat(self.vocabulary, np.diff(self.at))[order]
        ends = np.cumsum(np.bincount(self.holders, minlength=len(self.keys)))
        rows, parts = pairwise(self.first.tolist()), pairwise([0, *ends.tolist()])
        return {
            key: Profile(language, self.centroids[a:b], terms[c:d])
            for key, language, (a, b), (c, d) in zip(
                self.keys.tolist(), self.languages.tolist(), rows, parts, strict=True
            )
        }


def profiles_of(cards: CardSet, choices: Sequence[Choice]) -> Profiles:
    """The profiles of these cards of a pool. One without routing.json has the words of its description, as has one
    whose file can't be read: whoever opens the card is told of that."""
    manifests = [cards.manifest(choice.name) if choice.name in cards else None for choice in choices]
    files = ["" if manifest is None else manifest.files.get(ROUTING, "") for manifest in manifests]
    languages = ["en" if manifest is None else manifest.language for manifest in manifests]
    keys = [
        file or f"{language} {choice.description}"
        for file, language, choice in zip(files, languages, choices, strict=True)
    ]

    def make(i: int) -> Profile:
        read = cards.reader(choices[i].name) if files[i] else None
        return (_read(read) if read else None) or profile_of(languages[i], [choices[i].description])

    return packed(keys, make)


def described(choices: Sequence[Choice]) -> Profiles:
    """The profiles of cards of which only the descriptions are known."""
    return packed([c.description for c in choices], lambda i: profile_of("en", [choices[i].description]))


def packed(keys: Sequence[str], make: Callable[[int], Profile]) -> Profiles:
    """Profiles, of many from the cache. `keys`: what names each; `make` is called for those that are not known."""
    limit = min(settings().cache_mb * 1_000_000, SIZE)
    if not limit or len(keys) < MANY:
        return Profiles.of(keys, [make(i) for i in range(len(keys))])
    disk = cache.Cache(cache.folder() / "profiles.sqlite", limit)
    whole = cache.key("profiles", SHA256, cache.source_digest(*CODE), *keys)
    if (found := _loaded(disk.read([whole]).get(whole))) is not None:
        return found
    known = _latest(disk)
    made = Profiles.of(keys, [known[key] if key in known else make(i) for i, key in enumerate(keys)])
    disk.write({whole: _bytes(made), LATEST: whole})
    return made


def _read(read: Callable[[str], bytes]) -> Profile | None:
    try:
        return Profile.from_json(read(ROUTING).decode())
    except (KcardError, OSError, UnicodeDecodeError):
        return None


def _latest(disk: cache.Cache) -> dict[str, Profile]:
    """The profiles that were packed last, by digest."""
    pointer = disk.read([LATEST]).get(LATEST)
    found = None if pointer is None else _loaded(disk.read([pointer]).get(pointer))
    return {} if found is None else found.known()


def _bytes(profiles: Profiles) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **{f.name: getattr(profiles, f.name) for f in fields(Profiles)})
    return stream.getvalue()


def _loaded(stored: bytes | None) -> Profiles | None:
    if stored is None:
        return None
    try:
        with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
            return Profiles(**{f.name: arrays[f.name] for f in fields(Profiles)})
    except (ValueError, KeyError, OSError, zipfile.BadZipFile):
        return None  # of another version
