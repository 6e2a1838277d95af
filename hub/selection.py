"""Which cards a user means: the folder of a draft, and the versions that a selection such as `--cards` names.

Only a reference names a card. All cards, a domain subtree and a pool name none, since their contents may change later.
Cards that send the question to another service are used only if named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.errors import HubError, UnknownCard, UsageError
from kcard.hub.db.models import Version
from kcard.hub.values import QuarantineReason
from kcard.manifest import DRAFT, MANIFEST, NAME

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

POOL = "pool:"
LARGE_POOL = 32  # references from which one query for all cards is faster than one query each
MAX_NAMED_CARDS = 5  # in a message
EMPTY_HUB = (
    "no card is published yet: ask a folder of texts (kcard ask --corpus FOLDER QUESTION), or make a card of it with "
    "`kcard train FOLDER` and `kcard publish`"
)


def find_card_folder(drafts: Path, card: Path | str | None) -> Path:
    """Return the folder of a card: a draft by its name, a folder by its path; None: the draft sealed last.

    Raises HubError if there is none.
    """
    trained = sorted(drafts.glob(f"[!.]*/{MANIFEST}"), key=lambda path: path.stat().st_mtime)
    if card is None:
        if not trained:
            remedy = "train one with `kcard train --corpus PATH`, or name a card's folder"
            raise HubError(f"no trained card in {drafts}: {remedy}")
        return trained[-1].parent
    if isinstance(card, Path) or Path(card).name != card:
        return Path(card)
    for folder in (drafts / card, Path(card)):
        if folder.is_dir():
            return folder
    names = ", ".join(path.parent.name for path in trained) or "none"
    raise HubError(f"no draft {card!r} in {drafts} (drafts: {names}), and no folder {card!r}")


def is_hub_name(card: Path | str) -> bool:
    """Return whether a hub may call a card so: NAME, or NAMESPACE/NAME where there is no such folder."""
    if isinstance(card, Path):
        return False
    namespace, slash, name = card.rpartition("/")
    if not slash:
        return Path(card).name == card
    is_path = "/" in namespace or not name or namespace in {"", ".", "..", "~"}
    return not is_path and not Path(card).exists()


@dataclass(frozen=True)
class Selection:
    """The distinct versions to use, in the order given.

    left_out    references of excluded quarantined versions, with the reason
    spared      references of quarantined versions that are used because they are named, with the reason
    threshold   the hub's, if any version is quarantined
    elsewhere   references of excluded versions that would send the question to another service
    unreadable  references of excluded versions whose manifest this kcard can't read
    hidden      references of excluded versions that are private or gated; the note, which answers repeat, names none
    drafts      folders of the drafts to use, after the versions
    """

    versions: tuple[Version, ...]
    left_out: tuple[tuple[str, QuarantineReason], ...] = ()
    spared: tuple[tuple[str, QuarantineReason], ...] = ()
    threshold: float | None = None
    elsewhere: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    drafts: tuple[Path, ...] = ()

    @property
    def note(self) -> str:
        """What a user should know: what was excluded, what is used though quarantined, where questions are sent."""
        notes = []
        for version in self.versions:
            if version.manifest.asks_elsewhere:
                notes.append(f"{version.reference} sends the question to {version.manifest.training.method}")
        if self.spared:
            notes.append(f"used because it is named: {self._list_quarantined(self.spared)}")
        excluded = []
        if self.left_out:
            excluded.append(self._list_quarantined(self.left_out))
        if self.elsewhere:
            excluded.append(f"{', '.join(self.elsewhere)}, which would send the question to another service")
        if self.unreadable:
            excluded.append(f"{', '.join(self.unreadable)}, which this kcard can't read")
        if excluded:
            notes.append(f"left out: {'; '.join(excluded)}; name a card to use it anyway")
        return "; ".join(notes)

    def explain_empty(self) -> HubError:
        """Return the error for a selection whose versions are all excluded."""
        if self.left_out:
            card = self.left_out[0][0].partition("@")[0]
            return HubError(
                f"all selected cards are quarantined: {self._list_quarantined(self.left_out)}; name one to use it "
                f"anyway (--cards {card}), or change the threshold (kcard hub threshold)"
            )
        if self.elsewhere:
            card = self.elsewhere[0].partition("@")[0]
            return HubError(
                f"{', '.join(self.elsewhere)} would send the question to another service: to allow that, name the card "
                f"(--cards {card})"
            )
        if self.hidden:
            card = self.hidden[0].partition("@")[0]
            return HubError(
                f"all selected cards are private or gated: name one to answer from it (--cards {card})"
            )
        return UnknownCard("no cards selected: name cards, or a domain such as biomedical/")

    def _list_quarantined(self, quarantined: Sequence[tuple[str, QuarantineReason]]) -> str:
        names = [
            f"{reference} ({reason.factuality:.2f} {reason.word})"
            for reference, reason in quarantined[:MAX_NAMED_CARDS]
        ]
        listed = ", ".join(names)
        if len(quarantined) > MAX_NAMED_CARDS:
            listed += f" and {len(quarantined) - MAX_NAMED_CARDS} more"
        return f"{listed}, with factuality below the hub's threshold of {self.threshold:g}"


def select_cards(
    hub: "Hub", selection: Sequence[str] | None, *, public: bool = False, drafts: bool = False
) -> Selection:
    """Return the versions and drafts of a selection, as `Hub.select` does."""
    # The versions of each item, the references of those that are named, and the drafts, which have no version.
    named: set[str] = set()
    candidates: dict[str, Version] = {}
    folders: list[Path] = []
    if selection is None:
        candidates = {version.reference: version for version in hub.list()}
        own_drafts = hub.drafts() if drafts and not candidates else []
        if own_drafts and not public:
            return Selection((), drafts=tuple(own_drafts))
        if own_drafts:
            names = ", ".join(folder.name for folder in own_drafts)
            raise HubError(f"no card is published yet; to use drafts name them: --cards {names}")
        if not candidates:
            raise HubError(EMPTY_HUB)
    for item in dict.fromkeys(selection or ()):
        folder = _find_draft(hub, item) if drafts else None
        if folder is not None:
            folders.append(folder)
            continue
        versions = _find_versions(hub, item)
        if not item.startswith(POOL) and not item.endswith("/"):
            named.add(versions[0].reference)
        for version in versions:
            candidates.setdefault(version.reference, version)
    # What is excluded unless it is named: what others may not read, what this kcard can't read, versions that send
    # the question elsewhere, and quarantined ones; each for the first of these reasons.
    hidden: list[str] = []
    unreadable: list[str] = []
    elsewhere: list[str] = []
    left_out: list[tuple[str, QuarantineReason]] = []
    spared: list[tuple[str, QuarantineReason]] = []
    chosen: dict[str, Version] = {}
    for reference, version in candidates.items():
        if reference not in named:
            if public and version.restriction:
                hidden.append(reference)
                continue
            if version.parsed_manifest is None:
                unreadable.append(reference)
                continue
            if version.manifest.asks_elsewhere:
                elsewhere.append(reference)
                continue
            if version.quarantine is not None:
                left_out.append((reference, version.quarantine))
                continue
        elif version.quarantine is not None:
            spared.append((reference, version.quarantine))
        # The others, one version of each card.
        other = chosen.setdefault(version.name, version)
        if other.number != version.number:
            raise UsageError(
                f"{other.reference} and {version.reference} are the same card: choose one version"
            )
    result = Selection(
        tuple(chosen.values()),
        left_out=tuple(left_out),
        spared=tuple(spared),
        threshold=hub.quarantine.threshold if left_out or spared else None,
        elsewhere=tuple(elsewhere),
        unreadable=tuple(unreadable),
        hidden=tuple(hidden),
        drafts=tuple(folders),
    )
    if not chosen and not folders:
        raise result.explain_empty()
    return result


def _find_draft(hub: "Hub", item: str) -> Path | None:
    """Return the folder of the draft that an item of a selection names; None if it is something published.

    Raises UnknownCard for draft:NAME without such a draft.
    """
    name = item.removeprefix(DRAFT)
    folder = hub.home / "drafts" / name
    is_draft = NAME.fullmatch(name) is not None and (folder / MANIFEST).is_file()
    if item.startswith(DRAFT):
        if not is_draft:
            raise UnknownCard(f"no draft {name!r} in {folder.parent}: make one with `kcard train FOLDER`")
        return folder
    return folder if is_draft and item not in hub else None


def _find_versions(hub: "Hub", item: str) -> list[Version]:
    """Return the versions of an item of a selection. Raises UnknownCard if there are none."""
    if item.startswith(POOL):
        name = item.removeprefix(POOL)
        try:
            references = hub.pools.get(name).references
            newest = {v.name: v for v in hub.list()} if len(references) > LARGE_POOL else {}
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
    versions = hub.list(domain=item)
    if not versions:
        raise UnknownCard(f"no cards in domain {item!r}: `kcard cards list` shows the domains")
    return versions
