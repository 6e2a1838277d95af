"""Select cards by name, pool or domain, and keep snapshots of them on disk.

Only a reference names a card. All cards, a domain subtree and a pool name none, since their contents may change later.
Cards that send the question to another service are used only if named.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kcard.errors import DamagedCard, HubError, UnknownCard, UsageError
from kcard.hub.storage import Blobs, create, discard, partial_folder
from kcard.hub.values import Reason
from kcard.hub.versions import Version, damaged
from kcard.manifest import file_digest

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["EMPTY", "Selection", "Snapshots", "select"]


# Versions as folders: snapshots inside the hub, from which models are loaded, and copies outside it.


@dataclass(frozen=True)
class Snapshots:
    """Snapshots at `root`/<card>/<sha256 of the version>, with hard links to blobs if possible.

    The folder of the card namespace/name is namespace--name.
    """

    root: Path
    blobs: Blobs

    def folder(self, version: Version) -> Path:
        """Return the version's folder, verified, and rebuilt if it was modified. Raises DamagedCard."""
        target = self.root / version.name.replace("/", "--") / version.sha256
        if not _is_intact(target, version):
            with partial_folder(self.blobs.partial) as scratch:
                for path, sha256 in version.files.items():
                    file = scratch / "new" / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    if not self.blobs.holds(sha256):
                        raise damaged(version, path, "missing")
                    try:
                        self.blobs.materialize(sha256, file)
                    except DamagedCard as error:
                        raise damaged(version, path, str(error)) from None
                if target.exists() and not _is_intact(target, version):
                    target.rename(scratch / "old")
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    (scratch / "new").rename(target)
                except OSError:  # another process may have created the same folder
                    if not _is_intact(target, version):
                        raise
        return target

    def copy(self, version: Version, destination: Path) -> Path:
        """Copy the version's files to a new folder, verified, completely or not at all.

        Raises UsageError if the destination is a file or a folder that is not empty.
        """

        def opened(path: str) -> BinaryIO:
            sha256 = version.files[path]
            if not self.blobs.holds(sha256):
                raise damaged(version, path, "missing")
            return self.blobs.open(sha256)

        return create(destination, version.files, opened, partial(damaged, version))

    def __iter__(self) -> Iterator[Path]:
        """Yield all snapshots, named by their versions' sha256."""
        yield from sorted(self.root.glob("*/*"))

    def delete(self, folder: Path) -> None:
        """Delete a snapshot."""
        discard(folder)
        with contextlib.suppress(OSError):  # the card has other snapshots
            folder.parent.rmdir()


def _is_intact(folder: Path, version: Version) -> bool:
    expected = version.files
    try:
        paths = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
        return paths == set(expected) and all(file_digest(folder / p) == sha for p, sha in expected.items())
    except FileNotFoundError:
        return False


POOL = "pool:"
SEVERAL = 32  # cards from which one query for all is faster than one query each
EMPTY = "no card is published yet: train one with `kcard train --corpus PATH`, then `kcard publish`"
SHOWN = 5


@dataclass(frozen=True)
class Selection:
    """The distinct versions to use, in the order given.

    left_out   references of excluded quarantined versions, with the reason
    spared     likewise, of those that are used because they are named
    threshold  the hub's, if any version is quarantined
    elsewhere  references of excluded versions that would send the question to another service
    """

    versions: tuple[Version, ...]
    left_out: tuple[tuple[str, Reason], ...] = ()
    spared: tuple[tuple[str, Reason], ...] = ()
    threshold: float | None = None
    elsewhere: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Reports excluded versions, quarantined ones that are used, and those that send the question elsewhere."""
        senders = [
            f"{v.reference} sends the question to {v.manifest.training.method}"
            for v in self.versions
            if v.manifest.asks_elsewhere
        ]
        spared = (
            [f"used because it is named: {_list_quarantined(self.spared, self.threshold)}"]
            if self.spared
            else []
        )
        return "; ".join([*senders, *spared, *([self._without] if self._without else [])])

    @property
    def _without(self) -> str:
        parts = [_list_quarantined(self.left_out, self.threshold)] if self.left_out else []
        if self.elsewhere:
            parts.append(f"{', '.join(self.elsewhere)}, which would send the question to another service")
        return f"left out: {'; '.join(parts)}; name a card to use it anyway" if parts else ""


def select(hub: "Hub", selection: Sequence[str] | None) -> Selection:
    """See Hub.select."""
    if selection is None:
        if not (everything := hub.list()):
            raise HubError(EMPTY)
        by_item, named = [everything], set[str]()
    else:
        by_item = [_versions_of(hub, item) for item in selection]
        named = {
            versions[0].reference
            for item, versions in zip(selection, by_item, strict=True)
            if not (item.startswith(POOL) or item.endswith("/"))
        }
    every = {v.reference: v for versions in by_item for v in versions}
    elsewhere = tuple(r for r, v in every.items() if v.manifest.asks_elsewhere and r not in named)
    quarantined = hub.quarantine.held([v for r, v in every.items() if r not in elsewhere])
    left_out = tuple(
        (reference, reason) for reference, reason in quarantined.items() if reference not in named
    )
    spared = tuple((reference, reason) for reference, reason in quarantined.items() if reference in named)
    chosen: dict[str, Version] = {}
    for version in (version for versions in by_item for version in versions):
        if version.reference not in named and version.reference in {*quarantined, *elsewhere}:
            continue
        other = chosen.setdefault(version.name, version)
        if other.number != version.number:
            raise UsageError(
                f"{other.reference} and {version.reference} are the same card: choose one version"
            )
    threshold = hub.quarantine.threshold if quarantined else None
    if not chosen:
        raise _nothing_selected(left_out, threshold, elsewhere)
    return Selection((*chosen.values(),), left_out, spared, threshold, elsewhere)


def _versions_of(hub: "Hub", item: str) -> list[Version]:
    """Return the versions of an item of a selection. Raises UnknownCard if there are none."""
    if item.startswith(POOL):
        name = item.removeprefix(POOL)
        try:
            references = hub.pools.get(name).references
            newest = {v.name: v for v in hub.list()} if len(references) > SEVERAL else {}
            versions = [newest.get(reference) or hub.get(reference) for reference in references]
        except UnknownCard as error:
            raise UnknownCard(
                f"pool {name!r}: {error}; `kcard pool show {name}` marks missing cards"
            ) from error
        if not versions:
            raise UnknownCard(f"pool {name!r} is empty: add cards with `kcard pool add {name} CARD`")
        return versions
    if not item.endswith("/"):
        return [hub.get(item)]
    if not (versions := hub.list(domain=item)):
        raise UnknownCard(f"no cards in domain {item!r}: `kcard cards list` shows the domains")
    return versions


def _nothing_selected(
    left_out: Sequence[tuple[str, Reason]], threshold: float | None, elsewhere: Sequence[str]
) -> HubError:
    if elsewhere and not left_out:
        return HubError(
            f"{', '.join(elsewhere)} would send the question to another service: to allow that, name the card (--cards "
            f"{elsewhere[0].partition('@')[0]})"
        )
    if not left_out:
        return UnknownCard("no cards selected: name cards, or a domain such as biomedical/")
    card = left_out[0][0].partition("@")[0]
    return HubError(
        f"all selected cards are quarantined: {_list_quarantined(left_out, threshold)}; name one to use it "
        f"anyway (--cards {card}), or change the threshold (kcard hub threshold)"
    )


def _list_quarantined(quarantined: Sequence[tuple[str, Reason]], threshold: float | None) -> str:
    names = ", ".join(
        f"{reference} ({reason.factuality:.2f} {reason.word})" for reference, reason in quarantined[:SHOWN]
    )
    more = f" and {len(quarantined) - SHOWN} more" if len(quarantined) > SHOWN else ""
    return f"{names}{more}, with factuality below the hub's threshold of {threshold:g}"
