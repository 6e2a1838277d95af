"""A card is a folder: model files, tokenizer, source passages, README.md, and the manifest that seals them.

A pool holds cards by name, each opened when it is first wanted: of its ten thousand cards few ever are.

This file knows the folder's layout and nothing of models: it neither loads nor runs one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from kcard.answer import Source
from kcard.cards.format.kinds import INDEXED, kind_of
from kcard.cards.format.passages import PASSAGES, Indexing, passages, write
from kcard.errors import DamagedCard, UsageError
from kcard.files import write_text
from kcard.manifest import MANIFEST, Manifest, check_files, seal
from kcard.words import stemmer_of

__all__ = [
    "PASSAGES",
    "PROJECTION",
    "README",
    "WEIGHTS",
    "Card",
    "CardHandle",
    "CardSet",
    "finish",
    "is_weights",
    "passages",
]

README = "README.md"
PROJECTION = "projection.safetensors"
WEIGHTS = "model*.safetensors"  # of a whole model, in shards or not


def is_weights(name: str) -> bool:
    """Whether a card's file of that name holds weights of its own model."""
    return fnmatch(name, WEIGHTS)


@dataclass(frozen=True)
class Card:
    """A whole card on disk. Make one with `Card.open`, which checks it, or with `finish`."""

    folder: Path
    manifest: Manifest

    @property
    def name(self) -> str:
        return self.manifest.name

    @classmethod
    def open(cls, folder: Path | str) -> "Card":
        """The card that lies in `folder`, every file verified against the manifest.

        Raises CardError where it is no card or its kind is unknown, DamagedCard where a file is missing or
        changed.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder)
        _require(folder, manifest)
        check_files(folder, manifest)
        return cls(folder, manifest)


@dataclass(frozen=True)
class CardHandle:
    """A card of which only the manifest was read.

    folder   verifies its files and says where they lie
    size     bytes of all of its files; 0 where that is not known
    weights  bytes of those with its own model; None where that is not known
    read     gives one file, verified, by its path; None where only whole cards are to be had
    """

    manifest: Manifest
    folder: Callable[[], Path]
    size: int = 0
    weights: Callable[[], int] | None = None
    read: Callable[[str], bytes] | None = None


class CardSet(Mapping[str, Card]):
    """The cards of a pool, in the order given. Looking one up opens it, once, and raises DamagedCard as that does.

    Raises UsageError where two cards have one name.
    """

    def __init__(self, cards: Sequence[Card | CardHandle | Path]) -> None:
        self._cards: dict[str, Card | CardHandle] = {}
        for given in cards:
            card = Card.open(given) if isinstance(given, Path) else given
            name = card.manifest.name
            if name in self._cards:
                raise UsageError(f"two cards are named {name!r}: a pool holds one version of each card")
            self._cards[name] = card

    @property
    def manifests(self) -> list[Manifest]:
        """What is known of every card without opening it."""
        return [card.manifest for card in self._cards.values()]

    def known(self, name: str) -> Card | CardHandle:
        """The card as it is, opened or not."""
        return self._cards[name]

    def manifest(self, name: str) -> Manifest:
        return self._cards[name].manifest

    def reader(self, name: str) -> Callable[[str], bytes] | None:
        """What reads a file of a card by its path, without opening the card; None where there is no such way."""
        card = self._cards[name]
        return card.read if isinstance(card, CardHandle) else lambda path: (card.folder / path).read_bytes()

    def __getitem__(self, name: str) -> Card:
        card = self._cards[name]
        if isinstance(card, CardHandle):
            card = self._cards[name] = Card(card.folder(), card.manifest)
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
    report: Callable[[int], None] | None = None,
) -> Card:
    """Write the passages, with their index or as hashes, and README.md, then seal the folder: from then on a card.

    hashed  passages of which only the digest is known, and where they stand; for cards that travel with hashes
    report  called with how many passages are embedded, for a card that is searched in English

    A manifest from an earlier sealing is removed first, so that an interrupted call leaves no card rather
    than a wrong one. Raises CardError where the kind's model files are not there.
    """
    from kcard.cards.format.model_card import readme
    from kcard.cards.format.profile import write_profile

    folder = Path(folder)
    (folder / MANIFEST).unlink(missing_ok=True)
    dense = (manifest.kind == "retrieval" or manifest.index) and stemmer_of(manifest.language) == "english"
    indexing = Indexing(stemmer_of(manifest.language), dense, report)
    write(folder, passages, manifest.evidence, hashed or {}, indexing)
    write_profile(folder, manifest)
    write_text(folder / README, readme(manifest))
    _require(folder, manifest)
    return Card(folder, seal(folder, manifest))


def _require(folder: Path, manifest: Manifest) -> None:
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
