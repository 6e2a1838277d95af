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
from kcard.errors import HubError, UnknownCard
from kcard.hub.db.models import Version
from kcard.hub.db.session import Database
from kcard.hub.selection import EMPTY_HUB, Selection, select_cards
from kcard.hub.snapshots import Snapshots, damaged_file
from kcard.hub.storage import Blobs, explain_os_errors, open_store, sweep
from kcard.hub.versions import (
    CardReference,
    Quarantine,
    check_alias,
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


MAX_NOTEBOOK_CARDS, MAX_SUGGESTED_VERSIONS = 100, 5
Versions: TypeAlias = list[Version]  # `list` is a method below
Garbages: TypeAlias = "list[Garbage]"


@dataclass(frozen=True)
class FileProblem:
    """A missing or damaged file of a version; `what` says which."""

    card: str
    version: int
    path: str
    what: str


@dataclass(frozen=True)
class HubContents:
    """The size of a hub. `files` are distinct files, `size` is in bytes.

    `database` and `blobs` are their locations: paths, or URLs without credentials.
    """

    path: Path
    database: str
    blobs: str
    cards: int
    versions: int
    pools: int
    files: int
    size: int


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
        """Return the newest version of every card, MAX_NOTEBOOK_CARDS at most, as notebooks show them."""
        from kcard.display import table_html
        from kcard.io import shown_size

        versions = self.list()
        rows = []
        for version in versions[:MAX_NOTEBOOK_CARDS]:
            manifest, published = version.manifest, f"{version.published:%Y-%m-%d}"
            known = [manifest.description, manifest.kind, manifest.domain, shown_size(version.size)]
            rows.append([version.reference, *known, published])
        caption = f"{len(versions)} cards"
        if len(versions) == 1:
            caption = "1 card"
        if len(versions) > MAX_NOTEBOOK_CARDS:
            caption = f"the first {MAX_NOTEBOOK_CARDS} of {caption}"
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
        matches = versions[-1:]
        if "@" in ref:
            matches = [version for version in versions if reference.names(version)]
        if len(matches) > 1:
            same = ", ".join(v.reference for v in matches)
            raise UnknownCard(f"{ref!r} is ambiguous ({same}): use more digits")
        if not matches:
            names = []
            for version in versions[-MAX_SUGGESTED_VERSIONS:]:
                names.append(" ".join([f"v{version.number}", *(f"({alias})" for alias in version.aliases)]))
            there = ", ".join(names)
            if len(versions) > MAX_SUGGESTED_VERSIONS:
                there = f"… {there}"
            raise UnknownCard(
                f"card {reference.name!r} has no version {ref.partition('@')[2]!r}: it has {there}"
            )
        return matches[0]

    def versions(self, name: str) -> Versions:
        """Return every version of a card, oldest first. Raises UnknownCard."""
        versions = list_all(self.database, name)
        if versions:
            return versions
        names = list_names(self.database)
        near = difflib.get_close_matches(name, names, cutoff=0.5)
        hint = EMPTY_HUB if not names else "`kcard cards list` shows all cards"
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
        return select_cards(self, selection, public=public, drafts=drafts)

    def drafts(self) -> list[Path]:
        """Return the folders of the drafts, by name."""
        folders = [file.parent for file in (self.home / "drafts").glob(f"*/{MANIFEST}")]
        return sorted(folder for folder in folders if NAME.fullmatch(folder.name))

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
        sha256 = version.files.get(path)
        if sha256 is None:
            raise HubError(
                f"file {path!r} not found in card {version.reference}, which has {', '.join(version.files)}"
            )
        fault = self.blobs.find_fault(sha256)
        if fault is not None:
            raise damaged_file(version, path, fault)
        return self.blobs.open(sha256)

    def read(self, version: Version, path: str) -> bytes:
        """Return the content of a small verified file, without a query to the database. Raises as `open` does."""
        sha256 = version.files.get(path)
        if sha256 is None:
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
                what = faults[sha256]
                if what:
                    problems.append(FileProblem(version.name, version.number, path, what))
        return problems

    def _versions_of(self, ref: str) -> Versions:
        """Return every version for a card name, else the one of the reference."""
        if "@" in ref:
            return [self.get(ref)]
        return self.versions(ref)

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
        if domain is not None:
            domain = domain.rstrip("/")
        newest = list_newest(self.database, domain, base)
        words = (text or "").casefold().split()
        matching = []
        for version in newest:
            searched = f"{version.name}\n{version.description}\n{version.domain}".casefold()
            if all(word in searched for word in words):
                matching.append(version)
        return matching
