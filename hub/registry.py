"""The local hub: publish, get, list and delete cards.

    hub = Hub()
    version = hub.publish("drafts/oncology")
    hub.get("oncology@v1").manifest.description
    hub.folder("oncology")  # a verified folder for from_pretrained

`home`/hub has blobs/ (every file once, by sha256), hub.db (versions and audits), snapshots/ (versions as folders) and
partial/ (writes in progress). The database may be a PostgreSQL server instead, and the blobs in an object store.
"""

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from kcard.config import settings
from kcard.errors import DamagedCard, HubError, UnknownCard, UsageError
from kcard.hub.db.models import Version
from kcard.hub.db.session import Database
from kcard.hub.storage import Blobs, explain_os_errors, open_store, sweep
from kcard.hub.values import QuarantineReason
from kcard.hub.versions import (
    CardReference,
    FileProblem,
    HubContents,
    Quarantine,
    Snapshots,
    check_alias,
    damaged_file,
    list_all,
    list_names,
    list_newest,
)
from kcard.manifest import MANIFEST, NAME, Manifest, check_files, file_digest

if TYPE_CHECKING:
    from kcard.hub.audits import Audits
    from kcard.hub.garbage import Garbage
    from kcard.hub.pools import Pools, Runs
    from kcard.hub.publications import LocalCards


# Finds the folder to publish: the card trained last, a draft by name, or any folder.


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


# Selections of cards.
#
# Only a reference names a card. All cards, a domain subtree and a pool name none, since their contents may change
# later. Cards that send the question to another service are used only if named.

POOL = "pool:"
DRAFT = "draft:"
LARGE_POOL = 32  # references from which one query for all cards is faster than one query each
LISTED = 100  # cards in a notebook
EMPTY = (
    "no card is published yet: ask a folder of texts (kcard ask --corpus FOLDER QUESTION), or make a card of it with "
    "`kcard train FOLDER` and `kcard publish`"
)
MOST_LISTED = 5


@dataclass(frozen=True)
class Selection:
    """The distinct versions to use, in the order given.

    left_out   references of excluded quarantined versions, with the reason
    spared     references of quarantined versions that are used because they are named, with the reason
    threshold  the hub's, if any version is quarantined
    elsewhere  references of excluded versions that would send the question to another service
    unreadable  references of excluded versions whose manifest this kcard can't read
    hidden     references of excluded versions that are private or gated; the note, which answers repeat, names none
    drafts     folders of the drafts to use, after the versions
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
        notes = [
            f"{version.reference} sends the question to {version.manifest.training.method}"
            for version in self.versions
            if version.manifest.asks_elsewhere
        ]
        if self.spared:
            notes.append(f"used because it is named: {_list_quarantined(self.spared, self.threshold)}")
        excluded = [_list_quarantined(self.left_out, self.threshold)] if self.left_out else []
        if self.elsewhere:
            excluded.append(f"{', '.join(self.elsewhere)}, which would send the question to another service")
        if self.unreadable:
            excluded.append(f"{', '.join(self.unreadable)}, which this kcard can't read")
        if excluded:
            notes.append(f"left out: {'; '.join(excluded)}; name a card to use it anyway")
        return "; ".join(notes)


def _nothing_selected(
    left_out: Sequence[tuple[str, QuarantineReason]],
    threshold: float | None,
    elsewhere: Sequence[str],
    hidden: Sequence[str],
) -> HubError:
    """Return the error for a selection whose versions are all excluded."""
    if hidden and not left_out and not elsewhere:
        return HubError(
            f"all selected cards are private or gated: name one to answer from it (--cards "
            f"{hidden[0].partition('@')[0]})"
        )
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


def _list_quarantined(quarantined: Sequence[tuple[str, QuarantineReason]], threshold: float | None) -> str:
    names = ", ".join(
        f"{reference} ({reason.factuality:.2f} {reason.word})"
        for reference, reason in quarantined[:MOST_LISTED]
    )
    more = f" and {len(quarantined) - MOST_LISTED} more" if len(quarantined) > MOST_LISTED else ""
    return f"{names}{more}, with factuality below the hub's threshold of {threshold:g}"


# The hub.

Versions: TypeAlias = list[Version]  # `list` is a method below
Garbages: TypeAlias = "list[Garbage]"


class Hub:
    """The cards published under `home`, by default KCARD_HOME. Processes may share it."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        database_url: str | None = None,
        blobs_url: str | None = None,
        serving: bool = False,
    ) -> None:
        """Open the hub, creating it or migrating its database. Raises HubError.

        database_url  a database outside of `home`; by default KCARD_DATABASE_URL if the home is KCARD_HOME
        blobs_url     a store of files outside of `home`; by default KCARD_BLOBS_URL if the home is KCARD_HOME
        serving       for servers: see Database
        """
        configured = settings()
        self.home = configured.home if home is None else Path(home).expanduser().absolute()
        if self.home == configured.home:
            database_url = database_url or configured.database_url
            blobs_url = blobs_url or configured.blobs_url
        root = self.home / "hub"
        with explain_os_errors(f"can't open the hub in {root}"):
            root.mkdir(mode=0o700, parents=True, exist_ok=True)  # the parents get the default mode
        self.blobs: Blobs = open_store(root, blobs_url)
        self.database: Database = Database(database_url or root / "hub.db", serving=serving)
        self.quarantine: Quarantine = Quarantine(self.database)
        self._snapshots = Snapshots(root / "snapshots", self.blobs)

    def _repr_html_(self) -> str:
        """Return the newest version of every card, LISTED at most, as notebooks show them."""
        from kcard.display import table_html
        from kcard.io import shown_size

        versions = self.list()
        rows = [
            [
                version.reference,
                version.manifest.description,
                version.manifest.kind,
                version.manifest.domain,
                shown_size(version.size),
                f"{version.published:%Y-%m-%d}",
            ]
            for version in versions[:LISTED]
        ]
        count = f"{len(versions)} card{'' if len(versions) == 1 else 's'}"
        caption = count if len(versions) <= LISTED else f"the first {LISTED} of {count}"
        headings = ("card", "description", "kind", "domain", "size", "published")
        return table_html(f"Hub in {self.home}", [(caption, headings, rows)])

    @property
    def partial(self) -> Path:
        """Folder for writes in progress; gc deletes what killed processes leave there."""
        return self.blobs.partial

    @cached_property
    def pools(self) -> "Pools":
        """Named sets of cards."""
        from kcard.hub.pools import Pools

        return Pools(self.database, self.get)

    @cached_property
    def audits(self) -> "Audits":
        """Results of audits."""
        from kcard.hub.audits import Audits

        return Audits(self.database)

    @cached_property
    def _own_cards(self) -> "LocalCards":
        from kcard.hub.publications import LocalCards  # what asking does not need

        return LocalCards(self.database, self.blobs)

    @cached_property
    def runs(self) -> "Runs":
        """Evaluation runs."""
        from kcard.hub.pools import Runs

        return Runs(self.database)

    def publish(self, folder: Path | str, *, aliases: Sequence[str] = ()) -> Version:
        """Publish a card folder: only the files that its manifest lists.

        The same manifest again returns the existing version, sets its aliases and replaces its damaged blobs. Raises
        CardError if the folder is not a card or has a file that a shared hub refuses (code, pickles, unsafe paths),
        DamagedCard if a file does not match the manifest, HubError for errors of the disk or the database.
        """
        from kcard.hub.checks.content import check_contents

        folder = Path(folder).expanduser()
        for alias in aliases:
            check_alias(alias)
        manifest = Manifest.read(folder)
        check_files(folder, manifest)
        check_contents(manifest, lambda path: (folder / path).open("rb"))
        with explain_os_errors(f"can't publish {folder}"):
            text = (folder / MANIFEST).read_bytes().decode()
            if Manifest.from_json(text) != manifest:
                raise HubError(f"{folder} was sealed again during publication: publish it again")
            sweep(self.blobs.partial)
            # Blobs precede rows, so that every visible version is complete. A concurrent gc may delete a blob that no
            # row refers to yet, so missing ones are stored again once no other process can write.
            files = {**manifest.files, MANIFEST: hashlib.sha256(text.encode()).hexdigest()}

            def put_missing() -> None:
                for path, sha256 in files.items():
                    if not self.blobs.holds(sha256):
                        self.blobs.put(folder / path, sha256)

            published = False
            try:
                blobs = {path: self.blobs.put(folder / path, sha256) for path, sha256 in files.items()}
                version = self._own_cards.add(
                    text, blobs, aliases, lambda path: (folder / path).read_bytes(), put_missing
                )
                published = True
                return version
            finally:
                if not published:
                    self.gc()

    def published(self, folder: Path | str) -> Version | None:
        """Return the version that a card folder is already, by the sha256 of its manifest; None where it is none yet.

        Raises CardError if the folder is not a card.
        """
        folder = Path(folder).expanduser()
        name = Manifest.read(folder).name
        digest = file_digest(folder / MANIFEST)
        return next((v for v in list_all(self.database, name) if v.sha256 == digest), None)

    def get(self, ref: str) -> Version:
        """Return the version of a reference: card (the newest), card@v2, card@alias or card@sha256 (6 digits or more).

        Raises UnknownCard, which suggests near matches, and UsageError for an invalid reference.
        """
        reference = CardReference.parse(ref)
        versions = self.versions(reference.name)
        matches = [v for v in versions if reference.names(v)] if "@" in ref else versions[-1:]
        if len(matches) > 1:
            same = ", ".join(v.reference for v in matches)
            raise UnknownCard(f"{ref!r} is ambiguous ({same}): use more digits")
        if not matches:
            names = [f"v{v.number}" + "".join(f" ({alias})" for alias in v.aliases) for v in versions[-5:]]
            there = ("… " if len(versions) > 5 else "") + ", ".join(names)
            raise UnknownCard(
                f"card {reference.name!r} has no version {ref.partition('@')[2]!r}: it has {there}"
            )
        return matches[0]

    def versions(self, name: str) -> Versions:
        """Return every version of a card, oldest first. Raises UnknownCard."""
        if versions := list_all(self.database, name):
            return versions
        names = list_names(self.database)
        near = difflib.get_close_matches(name, names, cutoff=0.5)
        hint = EMPTY if not names else "`kcard cards list` shows all cards"
        if NAME.fullmatch(name) and (self.home / "drafts" / name / MANIFEST).is_file():
            hint = f"it is a draft, publish it first (kcard publish {name})"
        elif near:
            hint = f"did you mean {' or '.join(near)}?"
        raise UnknownCard(f"unknown card {name!r}: {hint}")

    def select(
        self, selection: Sequence[str] | None, *, public: bool = False, drafts: bool = False
    ) -> Selection:
        """Return the distinct versions of a selection, in the order given.

        public  for answers to others, exclude private and gated cards unless a reference names them
        drafts  a name that no published card has may be that of a draft, and draft:NAME always is

        An item is a reference, a pool (pool:NAME) or a domain subtree (ending in "/"). None means the newest version of
        every card, or every draft if no card is published and answers are for the user. Quarantined and unreadable
        versions are excluded, and reported, unless a reference names them. Raises UnknownCard if an item matches
        nothing, UsageError for two versions of one card, HubError if the hub is empty or all versions are excluded.
        """
        # The drafts, which have no version.
        folders: list[Path] = []
        if selection is not None and drafts:
            drafted = {item: folder for item in selection if (folder := self._draft(item)) is not None}
            folders = list(drafted.values())
            selection = [item for item in selection if item not in drafted]
        # The versions of each item, and the references of those that are named.
        if selection is None:
            everything = self.list()
            own_drafts = [] if everything or not drafts else self.drafts()
            if own_drafts and not public:
                return Selection((), drafts=tuple(own_drafts))
            if own_drafts:
                names = ", ".join(folder.name for folder in own_drafts)
                raise HubError(f"no card is published yet; to use drafts name them: --cards {names}")
            if not everything:
                raise HubError(EMPTY)
            by_item, named = [everything], set[str]()
        else:
            by_item = [self._find_item(item) for item in selection]
            named = {
                versions[0].reference
                for item, versions in zip(selection, by_item, strict=True)
                if not (item.startswith(POOL) or item.endswith("/"))
            }
        # What is excluded unless it is named: what others may not read, what this kcard can't read, versions that send
        # the question elsewhere, and quarantined ones; each for the first of these reasons.
        by_reference = {version.reference: version for versions in by_item for version in versions}
        hidden: list[str] = []
        unreadable: list[str] = []
        elsewhere: list[str] = []
        left_out: list[tuple[str, QuarantineReason]] = []
        spared: list[tuple[str, QuarantineReason]] = []
        chosen: dict[str, Version] = {}
        for reference, version in by_reference.items():
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
        threshold = self.quarantine.threshold if left_out or spared else None
        if not chosen and not folders:
            raise _nothing_selected(left_out, threshold, elsewhere, hidden)
        return Selection(
            (*chosen.values(),),
            (*left_out,),
            (*spared,),
            threshold,
            (*elsewhere,),
            (*unreadable,),
            (*hidden,),
            (*folders,),
        )

    def drafts(self) -> list[Path]:
        """Return the folders of the drafts, by name."""
        folders = [file.parent for file in (self.home / "drafts").glob(f"*/{MANIFEST}")]
        return sorted(folder for folder in folders if NAME.fullmatch(folder.name))

    def _draft(self, item: str) -> Path | None:
        """Return the folder of the draft that an item of a selection names; None if it is something published.

        Raises UnknownCard for draft:NAME without such a draft.
        """
        name = item.removeprefix(DRAFT)
        is_card_name = NAME.fullmatch(name) is not None
        folder = self.home / "drafts" / name
        is_draft = is_card_name and (folder / MANIFEST).is_file()
        if item.startswith(DRAFT):
            if not is_draft:
                raise UnknownCard(f"no draft {name!r} in {folder.parent}: make one with `kcard train FOLDER`")
            return folder
        return folder if is_draft and item not in self else None

    def _find_item(self, item: str) -> Versions:
        """Return the versions of an item of a selection. Raises UnknownCard if there are none."""
        if item.startswith(POOL):
            name = item.removeprefix(POOL)
            try:
                references = self.pools.get(name).references
                newest = {v.name: v for v in self.list()} if len(references) > LARGE_POOL else {}
                versions = [newest.get(reference) or self.get(reference) for reference in references]
            except UnknownCard as error:
                raise UnknownCard(
                    f"pool {name!r}: {error}; `kcard pool show {name}` marks missing cards"
                ) from error
            if not versions:
                raise UnknownCard(f"pool {name!r} is empty: add cards with `kcard pool add {name} CARD`")
            return versions
        if not item.endswith("/"):
            return [self.get(item)]
        if not (versions := self.list(domain=item)):
            raise UnknownCard(f"no cards in domain {item!r}: `kcard cards list` shows the domains")
        return versions

    def resolve(self, selection: Sequence[str] | None) -> Versions:
        """Return the versions that `select` selects. Raises as it does."""
        return [*self.select(selection).versions]

    def folder(self, ref: str) -> Path:
        """Return a read-only folder with the version's verified files, for from_pretrained. Raises DamagedCard."""
        version = self.get(ref)
        with explain_os_errors(f"can't create a snapshot of {version.reference}"):
            return self._snapshots.folder(version)

    def open(self, ref: str, path: str) -> BinaryIO:
        """Open a verified file of a version; the caller closes it. Raises HubError for an unknown file, DamagedCard."""
        version = self.get(ref)
        if (sha256 := version.files.get(path)) is None:
            raise HubError(
                f"file {path!r} not found in card {version.reference}, which has {', '.join(version.files)}"
            )
        try:
            return self.blobs.open_verified(sha256)
        except DamagedCard as error:
            raise damaged_file(version, path, "missing or damaged") from error

    def read(self, version: Version, path: str) -> bytes:
        """Return the content of a small verified file, without a query to the database. Raises as `open` does."""
        if (sha256 := version.files.get(path)) is None:
            raise HubError(f"file {path!r} not found in card {version.reference}")
        data = b"".join(self.blobs.read(sha256))
        if hashlib.sha256(data).hexdigest() != sha256:
            raise damaged_file(version, path, "damaged")
        return data

    def pull(self, ref: str, destination: Path | str) -> Path:
        """Copy a version to a new folder, verified, completely or not at all.

        Raises UsageError if the destination exists and is not an empty folder.
        """
        version = self.get(ref)
        with explain_os_errors(f"can't pull {version.reference}"):
            return self._snapshots.copy(version, Path(destination))

    def alias(self, ref: str, alias: str) -> Version:
        """Point card@alias at this version."""
        check_alias(alias)
        version = self._own_cards.alias(self.get(ref), alias)
        if version is None:
            raise UnknownCard(f"{ref} was removed by another process")
        return version

    def remove(self, ref: str) -> Versions:
        """Remove a card with all its versions, or one version; returns what was removed.

        Shared files stay. Numbers are not reused while the card exists.
        """
        gone = self._versions_of(ref)
        self._own_cards.remove(gone)
        with explain_os_errors(f"removed {ref}, but can't delete its files"):
            self.gc()
        return gone

    def gc(self, *, dry_run: bool = False) -> Garbages:
        """Delete unreferenced files and snapshots, and remains of killed processes; returns what was deleted.

        With `dry_run` nothing is deleted. Files that a process is writing are kept, as are uploads of the last day.
        """
        from kcard.hub.garbage import collect_garbage

        with explain_os_errors(f"can't clean up {self.home}"):
            return collect_garbage(self.database, self.blobs, self._snapshots, dry_run=dry_run)

    def info(self) -> HubContents:
        """Return the size and location of the hub."""
        versions = list_all(self.database)
        sizes = dict(self.blobs.sizes())
        return HubContents(
            path=self.home / "hub",
            database=self.database.name,
            blobs=self.blobs.where(),
            cards=len({version.name for version in versions}),
            versions=len(versions),
            pools=len(self.pools.list()),
            files=len(sizes),
            size=sum(sizes.values()),
        )

    def verify(self, ref: str | None = None) -> list[FileProblem]:
        """Return the missing or damaged files of a version, of all versions of a card, or of the whole hub."""
        faults: dict[str, str | None] = {}
        problems = []
        for version in list_all(self.database) if ref is None else self._versions_of(ref):
            for path, sha256 in version.files.items():
                if sha256 not in faults:
                    faults[sha256] = self.blobs.find_fault(sha256)
                if what := faults[sha256]:
                    problems.append(FileProblem(version.name, version.number, path, what))
        return problems

    def _versions_of(self, ref: str) -> Versions:
        """Return every version for a card name, else the one of the reference."""
        return [self.get(ref)] if "@" in ref else self.versions(ref)

    def __iter__(self) -> Iterator[Version]:
        """Iterate over the newest version of every card, by name."""
        return iter(self.list())

    def __len__(self) -> int:
        """Return the number of cards."""
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        """Return whether the card exists."""
        return bool(list_all(self.database, str(name)))

    def list(self, text: str | None = None, domain: str | None = None, base: str | None = None) -> Versions:
        """Return the newest version of every card, by name.

        text    words that must all occur in name, description or domain, in any case
        domain  that domain and those below it
        base    the base model's name, with or without its organisation
        """
        newest = list_newest(self.database, None if domain is None else domain.rstrip("/"), base)
        words = (text or "").casefold().split()
        matching = []
        for version in newest:
            searched = f"{version.name}\n{version.description}\n{version.domain}".casefold()
            if all(word in searched for word in words):
                matching.append(version)
        return matching
