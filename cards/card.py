"""A card: its folder, its kind, its files, and what can be done with it.

A pool holds cards by name and opens each on first use, since of ten thousand cards few are ever needed. This module
knows the layout of the folder; it neither loads nor runs a model.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard import system
from kcard.cards.passages import INDEX, PASSAGES, Indexing, write_passages
from kcard.cards.profile import write_profile
from kcard.errors import CardError, DamagedCard, UsageError
from kcard.events import OnEvent, ignore
from kcard.io import write_text
from kcard.manifest import (
    BOTH,
    MANIFEST,
    METHODS,
    MODEL,
    NO_PREFIX_CARDS,
    PREFIX,
    Manifest,
    check_files,
    seal,
)
from kcard.text import stemmer_of
from kcard.types import Answer, Question, Source

if TYPE_CHECKING:
    from kcard.evaluation.records import Exam
    from kcard.hub.client.transfer import PublishedVersion
    from kcard.hub.db.models import Version
    from kcard.hub.registry import Hub

# The files and the loader of each kind of card; a card with a model of its own is looked up by its training method.
# Packages register further kinds under `kcard.card_kinds`.
#
# Loaders are named, not imported, so that reading a manifest loads nothing heavy.


@dataclass(frozen=True)
class Kind:
    """`files`: of each tuple, at least one must be in the folder. `loader`: module:function."""

    files: tuple[tuple[str, ...], ...]
    loader: str


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
MODEL_FILES = (("config.json",), ("model.safetensors", "model.safetensors.index.json"), TOKENIZER)
GRAPH, SEARCH, REFERENCE = "graph.tsv", "search.json", "reference.json"
ADAPTER = (("adapter_config.json",), ("adapter_model.safetensors",), TOKENIZER)
INDEX_FILES = ((PASSAGES,), (f"{INDEX}/params.index.json",))

GROUP = "kcard.card_kinds"
KINDS: Mapping[str, Kind] = {
    "full": Kind(MODEL_FILES, "kcard.cards.generators.external:load_model_of_card"),
    "lora": Kind(ADAPTER, "kcard.cards.generators.external:load_model_of_card"),
    "retrieval": Kind(INDEX_FILES, "kcard.cards.generators.retrieval:load_retrieval_card"),
    "graph": Kind((*INDEX_FILES, (GRAPH,)), "kcard.cards.generators.graph:load_graph_card"),
    "search": Kind(((SEARCH,),), "kcard.cards.generators.external:load_search_card"),
    "reference": Kind(((REFERENCE,),), "kcard.cards.generators.external:load_reference_card"),
    "llm": Kind((), "kcard.cards.generators.external:load_llm_card"),
}


def kind_of(manifest: Manifest) -> Kind:
    """Return the card's kind. Raises CardError if neither this version nor an installed package knows it."""
    key = manifest.method or manifest.kind
    if key in KINDS:
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
    """A whole card on disk, as `kcard.train` makes it and `Card.open` opens it.

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

    # What the functions of the package do with one card; they are imported when they are called.

    def ask(
        self, question: str | Question, choices: Sequence[str] | Mapping[str, str] | str = (), **options: Any
    ) -> Answer:
        """Answer a question with this card alone, which need not be published. Takes the options of `kcard.ask`."""
        import kcard

        return kcard.ask(question, choices, selection=CardSet([self]), cards=[self.name], **options)

    def exam(self, **options: Any) -> "Exam":
        """Examine the card and write the results into its folder, which changes its manifest: open the folder again to
        see them. Takes the options of `kcard.exam`."""
        import kcard

        return kcard.exam(self.folder, **options)

    def publish(self, hub: "Hub | None" = None, **options: Any) -> "Version":
        """Publish the card as its next version on a local hub. Takes the options of `kcard.publish`."""
        import kcard

        version: Version = kcard.publish(self.folder, hub=hub, **options)
        return version

    def push(self, hub: str, **options: Any) -> "PublishedVersion":
        """Publish the card on the hub at a URL. Takes the options of `kcard.publish`, such as `repository`."""
        import kcard

        return kcard.publish(self.folder, hub=hub, **options)

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

    folder    verifies its files and returns their folder
    size      bytes of all of its files; 0 if unknown
    weights   returns the bytes of its own model's files; None if unknown
    read      returns one file, verified, by its path; None if only whole cards are available
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
    """The cards of a pool, in the order given. Looking one up opens it, once. Raises DamagedCard as `Card.open` does.

    Raises UsageError if two cards have one name.
    """

    def __init__(self, cards: Sequence[Card | CardHandle | Path]) -> None:
        self._cards: dict[str, Card | CardHandle] = {}
        for entry in cards:
            if isinstance(entry, Path):
                card: Card | CardHandle = Card.open(entry)
            else:
                card = entry
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
        if isinstance(card, CardHandle):
            return card.read
        return lambda path: (card.folder / path).read_bytes()

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

    hashed    locations of passages known only by digest; for cards that ship hashes
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
        needed += INDEX_FILES
    for either in needed:
        if not any((folder / name).is_file() for name in either):
            raise DamagedCard(
                f"card {manifest.name!r} of kind {manifest.kind!r}: {folder} has no {' or '.join(either)}"
            )
