"""Cards by name, each opened when it is first wanted: of the ten thousand cards of a pool few ever are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.cards.format.folder import Card
from kcard.errors import UsageError
from kcard.manifest import Manifest

__all__ = ["CardHandle", "CardSet"]


@dataclass(frozen=True)
class CardHandle:
    """A card of which only the manifest was read. `folder` verifies its files and says where they lie."""

    manifest: Manifest
    folder: Callable[[], Path]


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
