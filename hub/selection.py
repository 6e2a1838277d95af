"""Which versions a user's selection means, and which of them quarantine leaves out.

A card is named by its reference. All cards, a domain subtree and a pool name none: what is in them may change, or may
have been measured, after they were written down. A card that sends the question elsewhere is used only where it is
named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.errors import HubError, UnknownCard, UsageError
from kcard.hub.repositories.versions import Version

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["EMPTY", "Selection", "select"]

POOL = "pool:"
SEVERAL = 32  # cards, which one query finds sooner than one each
EMPTY = "no card is published yet: train one with `kcard train --corpus PATH`, then `kcard publish`"
SHOWN = 5


@dataclass(frozen=True)
class Selection:
    """The versions to be used, without repeats, in the order given.

    left_out   the quarantined ones that were meant and not named, by reference, with their factuality
    spared     the quarantined ones that are used since they are named, likewise
    threshold  the hub's, where there is one of these
    elsewhere  those that would send the question elsewhere and were not named, by reference
    """

    versions: tuple[Version, ...]
    left_out: tuple[tuple[str, float], ...] = ()
    spared: tuple[tuple[str, float], ...] = ()
    threshold: float | None = None
    elsewhere: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What was left out, what is used in spite of quarantine, which cards send the question elsewhere; or empty."""
        senders = [
            f"{v.reference} sends what it is asked to {v.manifest.training.method}" for v in self._senders
        ]
        spared = [f"used since it is named: {_told(self.spared, self.threshold)}"] if self.spared else []
        return "; ".join([*senders, *spared, *([self._without] if self._without else [])])

    @property
    def _senders(self) -> list[Version]:
        return [version for version in self.versions if version.manifest.asks_elsewhere]

    @property
    def _without(self) -> str:
        told = [_told(self.left_out, self.threshold)] if self.left_out else []
        if self.elsewhere:
            told.append(f"{', '.join(self.elsewhere)}, to which the question would be sent")
        return f"left out: {'; '.join(told)}; name a card to use it all the same" if told else ""


def select(hub: "Hub", selection: Sequence[str] | None) -> Selection:
    """See Hub.select."""
    if selection is None:
        if not (everything := hub.list()):
            raise HubError(EMPTY)
        meant, named = [everything], set[str]()
    else:
        meant = [_meant(hub, item) for item in selection]
        named = {
            found[0].reference
            for item, found in zip(selection, meant, strict=True)
            if not (item.startswith(POOL) or item.endswith("/"))
        }
    every = {v.reference: v for found in meant for v in found}
    elsewhere = tuple(r for r, v in every.items() if v.manifest.asks_elsewhere and r not in named)
    held = hub.quarantine.held([v for r, v in every.items() if r not in elsewhere])
    left_out = tuple((reference, score) for reference, score in held.items() if reference not in named)
    spared = tuple((reference, score) for reference, score in held.items() if reference in named)
    chosen: dict[str, Version] = {}
    for version in (version for found in meant for version in found):
        if version.reference not in named and version.reference in {*held, *elsewhere}:
            continue
        other = chosen.setdefault(version.name, version)
        if other.number != version.number:
            raise UsageError(f"{other.reference} and {version.reference} are one card: name one version")
    threshold = hub.quarantine.threshold if held else None
    if not chosen:
        raise _none(left_out, threshold, elsewhere)
    return Selection((*chosen.values(),), left_out, spared, threshold, elsewhere)


def _meant(hub: "Hub", item: str) -> list[Version]:
    if item.startswith(POOL):
        return _pooled(hub, item.removeprefix(POOL))
    return _subtree(hub, item) if item.endswith("/") else [hub.get(item)]


def _pooled(hub: "Hub", name: str) -> list[Version]:
    try:
        references = hub.pools.get(name).references
        newest = {v.name: v for v in hub.list()} if len(references) > SEVERAL else {}
        found = [newest.get(reference) or hub.get(reference) for reference in references]
    except UnknownCard as error:
        raise UnknownCard(f"pool {name!r}: {error}; `kcard pool show {name}` marks what it misses") from error
    if not found:
        raise UnknownCard(f"pool {name!r} is empty: `kcard pool add {name} CARD` fills it")
    return found


def _subtree(hub: "Hub", domain: str) -> list[Version]:
    if not (found := hub.list(domain=domain)):
        raise UnknownCard(f"no card in the domain {domain!r}: `kcard cards list` shows the domains")
    return found


def _none(held: Sequence[tuple[str, float]], threshold: float | None, elsewhere: Sequence[str]) -> HubError:
    if elsewhere and not held:
        return HubError(
            f"the question would be sent elsewhere by {', '.join(elsewhere)}: name the card if you want that (--cards "
            f"{elsewhere[0].partition('@')[0]})"
        )
    if not held:
        return UnknownCard("no card is named: name cards or a domain such as biomedical/")
    card = held[0][0].partition("@")[0]
    return HubError(
        f"every card that is meant is quarantined: {_told(held, threshold)}; name one to use it all the same "
        f"(--cards {card}), or change the threshold (kcard hub threshold)"
    )


def _told(held: Sequence[tuple[str, float]], threshold: float | None) -> str:
    names = ", ".join(f"{reference} ({score:.2f})" for reference, score in held[:SHOWN])
    more = f" and {len(held) - SHOWN} more" if len(held) > SHOWN else ""
    return f"{names}{more}, whose factuality is under the hub's threshold of {threshold:g}"
