"""A card's folder: its kind, its files and its profile.

A pool holds cards by name and opens each on first use, since of ten thousand cards few are ever needed. This module
knows the layout of the folder; it neither loads nor runs a model.
"""

import binascii
import json
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard import system
from kcard.cards.passages import INDEX, PASSAGES, Indexing, passages, write_passages
from kcard.embedded import minilm
from kcard.errors import CardError, DamagedCard, UsageError
from kcard.events import OnEvent, ignore
from kcard.interfaces import Array
from kcard.io import parse, write_text
from kcard.manifest import (
    BOTH,
    MANIFEST,
    METHODS,
    MODEL,
    NO_PREFIX_CARDS,
    PREFIX,
    Manifest,
    check_files,
    check_profile,
    seal,
)
from kcard.text import analyzer, is_english, small_words, stemmer_of
from kcard.types import Source

# The kinds of cards, and for those with a model of their own its method: the files and the loader of each. Further
# kinds are registered under `kcard.card_kinds`.
#
# Loaders are named, not imported, so that reading a manifest loads nothing heavy.


@dataclass(frozen=True)
class Kind:
    """`files`: of each tuple, at least one must be in the folder. `loader`: module:function."""

    files: tuple[tuple[str, ...], ...]
    loader: str


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
WHOLE = (("config.json",), ("model.safetensors", "model.safetensors.index.json"), TOKENIZER)
GRAPH, SEARCH, REFERENCE = "graph.tsv", "search.json", "reference.json"
ADAPTER = (("adapter_config.json",), ("adapter_model.safetensors",), TOKENIZER)
INDEXED = ((PASSAGES,), (f"{INDEX}/params.index.json",))

GROUP = "kcard.card_kinds"
KINDS: Mapping[str, Kind] = {
    "full": Kind(WHOLE, "kcard.cards.generators.external:load_model_of_card"),
    "lora": Kind(ADAPTER, "kcard.cards.generators.external:load_model_of_card"),
    "retrieval": Kind(INDEXED, "kcard.cards.generators.retrieval:load_retrieval_card"),
    "graph": Kind((*INDEXED, (GRAPH,)), "kcard.cards.generators.graph:load_graph_card"),
    "search": Kind(((SEARCH,),), "kcard.cards.generators.external:load_search_card"),
    "reference": Kind(((REFERENCE,),), "kcard.cards.generators.external:load_reference_card"),
    "llm": Kind((), "kcard.cards.generators.external:load_llm_card"),
}


def kind_of(manifest: Manifest) -> Kind:
    """Return the card's kind. Raises CardError if neither this version nor an installed package knows it."""
    if (key := manifest.method or manifest.kind) in KINDS:
        return KINDS[key]
    if manifest.kind == PREFIX:
        raise CardError(f"card {manifest.name!r}: {NO_PREFIX_CARDS}")
    further = system.names(GROUP)
    if manifest.kind not in further:
        raise CardError(
            f"card {manifest.name!r} is of the unknown kind {manifest.kind!r}; this kcard knows "
            f"{', '.join(sorted({MODEL, BOTH, *KINDS, *further} - {*METHODS}))}"
        )
    kind: Kind = system.load(GROUP, manifest.kind)
    return kind


README = "README.md"
PROJECTION = "projection.safetensors"
WEIGHTS = "model*.safetensors"  # of a whole model, in shards or not


def is_weights(name: str) -> bool:
    """Return whether a file name is that of a card's own weights."""
    return fnmatch(name, WEIGHTS)


@dataclass(frozen=True)
class Card:
    """A whole card on disk. Create it with `Card.open`, which verifies it, or with `finish`.

    hub_name  its name in a hub, such as ada/moons, which no manifest can claim for itself; "": the manifest's
    """

    folder: Path
    manifest: Manifest
    hub_name: str = ""

    @property
    def name(self) -> str:
        return self.hub_name or self.manifest.name

    @classmethod
    def open(cls, folder: Path | str) -> "Card":
        """Open the card in `folder` and verify every file against the manifest.

        Raises CardError if it is no card or its kind is unknown, DamagedCard if a file is missing or changed.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder)
        _require_files(folder, manifest)
        check_files(folder, manifest)
        return cls(folder, manifest)

    def _repr_html_(self) -> str:
        """Return the card as notebooks show it: what its manifest says, and its folder."""
        from kcard.display import fields_html

        manifest = self.manifest
        passages = manifest.training.passages
        return fields_html(
            manifest.name,
            manifest.description,
            {
                "kind": "model and index" if manifest.has_model and manifest.index else manifest.kind,
                "base": manifest.base.name if manifest.has_model else "",
                "domain": manifest.domain,
                "language": manifest.language,
                "knowledge up to": manifest.knowledge_date,
                "passages": f"{passages:,}" if passages else "",
                "licence of the corpus": manifest.licence,
                "folder": self.folder,
            },
        )


@dataclass(frozen=True)
class CardHandle:
    """A card of which only the manifest was read.

    folder   verifies its files and returns their folder
    size     bytes of all of its files; 0 if unknown
    weights  bytes of its own model's files; None if unknown
    read     returns one file, verified, by its path; None if only whole cards are available
    hub_name  see Card
    """

    manifest: Manifest
    folder: Callable[[], Path]
    size: int = 0
    weights: Callable[[], int] | None = None
    read: Callable[[str], bytes] | None = None
    hub_name: str = ""

    @property
    def name(self) -> str:
        return self.hub_name or self.manifest.name


class CardSet(Mapping[str, Card]):
    """The cards of a pool, in the order given. Looking one up opens it, once, and raises DamagedCard as that does.

    Raises UsageError if two cards have one name.
    """

    def __init__(self, cards: Sequence[Card | CardHandle | Path]) -> None:
        self._cards: dict[str, Card | CardHandle] = {}
        for entry in cards:
            card = Card.open(entry) if isinstance(entry, Path) else entry
            if card.name in self._cards:
                raise UsageError(f"two cards are named {card.name!r}: a pool holds one version of each card")
            self._cards[card.name] = card

    @property
    def manifests(self) -> dict[str, Manifest]:
        """The manifest of every card by its name; none is opened."""
        return {name: card.manifest for name, card in self._cards.items()}

    def entry(self, name: str) -> Card | CardHandle:
        """Return the card without opening it: a Card if it was opened before, else a CardHandle."""
        return self._cards[name]

    def manifest(self, name: str) -> Manifest:
        return self._cards[name].manifest

    def reader(self, name: str) -> Callable[[str], bytes] | None:
        """Return a function that reads one file of a card by its path without opening the card; None if only whole
        cards are available."""
        card = self._cards[name]
        return card.read if isinstance(card, CardHandle) else lambda path: (card.folder / path).read_bytes()

    def __getitem__(self, name: str) -> Card:
        card = self._cards[name]
        if isinstance(card, CardHandle):
            card = self._cards[name] = Card(card.folder(), card.manifest, card.hub_name)
        return card

    def __contains__(self, name: object) -> bool:
        return name in self._cards

    def __iter__(self) -> Iterator[str]:
        return iter(self._cards)

    def __len__(self) -> int:
        return len(self._cards)


def finish(
    folder: Path | str,
    manifest: Manifest,
    passages: Iterable[Source],
    hashed: Mapping[str, Source] | None = None,
    on_event: OnEvent = ignore,
) -> Card:
    """Write the passages, with their index or as hashes, and README.md, then seal the folder, which makes it a card.

    hashed  locations of passages known only by digest; for cards that ship hashes
    on_event  called with the number of passages embedded (kind index), for a card that is searched in English

    The manifest of an earlier sealing is removed first, so that an interrupted call leaves no card rather than a wrong
    one. Raises CardError if the kind's model files are missing.
    """
    from kcard.cards.model_card import readme

    folder = Path(folder)
    (folder / MANIFEST).unlink(missing_ok=True)
    dense = manifest.kind in ("retrieval", BOTH) and stemmer_of(manifest.language) == "english"
    indexing = Indexing(stemmer_of(manifest.language), dense, on_event)
    write_passages(folder, passages, manifest.evidence, hashed or {}, indexing)
    write_profile(folder, manifest)
    write_text(folder / README, readme(manifest))
    _require_files(folder, manifest)
    return Card(folder, seal(folder, manifest))


def _require_files(folder: Path, manifest: Manifest) -> None:
    needed = [*kind_of(manifest).files]
    if manifest.prompt.style == "encoder-prefix":
        needed.append((PROJECTION,))
    if manifest.index:
        needed += INDEXED
    for either in needed:
        if not any((folder / name).is_file() for name in either):
            raise DamagedCard(
                f"card {manifest.name!r} of kind {manifest.kind!r}: {folder} has no {' or '.join(either)}"
            )


# routing.json: a profile of the questions that a card answers, from its corpus and exam, by which cards are selected.
#
#     {"format": 1, "language": "en", "encoder": NAME, "encoder_sha256": SHA256, "centroids": BASE64, "terms": BASE64}
#
# centroids  int8, shape (k, 384): unit vectors times 127, the k-means centroids of the corpus' passages and, after an
#            exam, of the questions that the card answered correctly. LoRAUTER (arXiv 2601.21795, section 3) represents
#            an adapter by the questions of such a validation set. None if the card's language is not the encoder's
# terms      uint32, little-endian, ascending: CRC-32 of the stems found in most passages, at most TERMS of them
#
# A card that ships hashes of its passages has no such file: the terms would reveal the passages' content.

ROUTING = "routing.json"
FORMAT = 1
SCALE = 127
CENTROIDS = 16  # of each set of vectors
TERMS = 2048
ITERATIONS = 15

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
        """Parse it; None for a later format or another encoder. Raises CardError if malformed."""
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
    """Return the profile of a corpus of `texts`. `vectors`: sets of unit vectors, shapes (n, 384), such as those of the
    passages and of answered questions; each set has its own centroids.

    Deterministic.
    """
    centroids = [np.zeros((0, minilm.DIMENSIONS), np.float32), *map(_find_centroids, vectors)]
    rows = np.rint(np.concatenate(centroids) * SCALE).astype(np.int8)
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(terms_of(text, language))
    frequent = sorted(counts, key=lambda term: (-counts[term], term))[:TERMS]
    return Profile(language, rows, np.array(sorted(frequent), np.uint32))


def terms_of(text: str, language: str) -> frozenset[int]:
    """Return the CRC-32s of a text's stems, excluding those of the language's small words."""
    stems = analyzer(stemmer_of(language))(text)
    return frozenset(zlib.crc32(stem.encode()) for stem in stems) - small_terms(language)


@cache
def small_terms(language: str) -> frozenset[int]:
    """Return the terms of a language's small words."""
    stems = analyzer(stemmer_of(language))
    return frozenset(zlib.crc32(stem.encode()) for word in small_words(language) for stem in stems(word))


def _find_centroids(vectors: Array) -> Array:
    """Run spherical k-means: CENTROIDS unit vectors, shape (k, 384), fewer if there are fewer distinct vectors.

    Starts from the vector nearest to the mean and repeatedly adds the one farthest from all centroids.
    """
    if not len(vectors):
        return vectors
    rows = [int(np.argmax(vectors @ vectors.mean(axis=0)))]
    nearest = vectors @ vectors[rows[0]]
    while len(rows) < min(CENTROIDS, len(vectors)) and nearest.min() < 1 - 1e-5:
        rows.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, vectors @ vectors[rows[-1]])
    centroids = vectors[rows]
    for _ in range(ITERATIONS):
        members = np.argmax(vectors @ centroids.T, axis=1)
        sums = (members == np.arange(len(centroids))[:, None]).astype(np.float32) @ vectors
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centroids = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centroids)
    return centroids


# Writes a card's routing.json: the profile of its passages and correctly answered questions.

READ = 20_000  # passages whose words are counted, spread over the corpus
EMBEDDED, TOKENS = 64, 4096  # passages that are embedded, spread over the corpus, and their total tokens


def write_profile(folder: Path, manifest: Manifest, answered: Sequence[str] = ()) -> None:
    """Write routing.json, or remove it if the card ships no text of the corpus.

    answered  questions that the card answered correctly

    It is not sealed. Of questions, only centroids and hashed words are stored. Raises CardError if the passages can't
    be read.
    """
    sources = passages(folder)
    if not len(sources):
        (folder / ROUTING).unlink(missing_ok=True)
        return
    texts = (passage.in_context for passage in sources[:: -(-len(sources) // READ)])
    vectors: list[Array] = []
    if is_english(manifest.language):
        spread = [passage.in_context for passage in sources[:: -(-len(sources) // EMBEDDED)]]
        vectors = [minilm.embed(spread, min(minilm.MAX_TOKENS, TOKENS // len(spread)))]
        vectors += [minilm.embed(answered)] if answered else []
    profile = profile_of(manifest.language, chain([manifest.description], texts, answered), *vectors)
    write_text(folder / ROUTING, profile.to_json())
