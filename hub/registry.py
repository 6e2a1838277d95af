"""The hub: publishes card folders as immutable versions and finds them again. It knows no model.

    hub = Hub()
    version = hub.publish("drafts/oncology")
    hub.get("oncology@v1").manifest.description
    hub.folder("oncology")  # a verified folder for from_pretrained

Under `home`/hub lie blobs/ (every file once, by sha256), hub.db (which version has which files; audits), snapshots/
(versions as folders) and partial/ (what is being written just now). The database may be a PostgreSQL server instead,
and the blobs may lie in an object store.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from kcard.config import settings
from kcard.errors import DamagedCard, HubError, UnknownCard
from kcard.faults import reach
from kcard.hub.repositories.versions import Contents, Problem, Reference, Version, check_alias, damaged
from kcard.hub.selection import EMPTY, Selection, select
from kcard.hub.snapshots import Snapshots
from kcard.hub.store.blobs import Blobs, fault, opened_store, put, verified
from kcard.hub.store.disk import explained, sweep
from kcard.manifest import MANIFEST, Manifest, check_files

if TYPE_CHECKING:
    from kcard.hub.garbage import Garbage
    from kcard.hub.repositories.own_cards import OwnCards

__all__ = ["Hub"]

Versions: TypeAlias = list[Version]  # `list` is a method below
Garbages: TypeAlias = "list[Garbage]"
Report: TypeAlias = Callable[[int], None]


class Hub:
    """The cards published under `home`, by default KCARD_HOME. Processes may share one.

    `database` and `blobs` are what everything here is kept in.
    """

    def __init__(
        self,
        home: Path | None = None,
        *,
        database_url: str | None = None,
        blobs_url: str | None = None,
        pooled: bool = False,
    ) -> None:
        """Open the hub, creating it or migrating its database; HubError where that can't be done.

        database_url  where the database is, if not in `home`; by default KCARD_DATABASE_URL, but only for the hub
                      in KCARD_HOME: a home that is named here is a hub of its own
        blobs_url     likewise where the files are, KCARD_BLOBS_URL
        pooled        whether connections to a SQLite file are kept, as a server wants that opens many transactions
        """
        from kcard.hub.records.database import Database
        from kcard.hub.repositories.audits import Audits  # SQLAlchemy takes 0.2 s: not for `kcard --help`
        from kcard.hub.repositories.catalogue import Catalogue
        from kcard.hub.repositories.pools import Pools
        from kcard.hub.repositories.quarantine import Quarantine

        configured = settings()
        self.home = configured.home if home is None else Path(home).expanduser().absolute()
        if self.home == configured.home:
            database_url = database_url or configured.database_url
            blobs_url = blobs_url or configured.blobs_url
        root = self.home / "hub"
        with explained(f"can't open the hub in {root}"):
            root.mkdir(parents=True, exist_ok=True)
        self.blobs: Blobs = opened_store(root, blobs_url)
        self.database: Database = Database(database_url or root / "hub.db", self._read, pooled=pooled)
        self._catalogue = Catalogue(self.database)
        self.pools: Pools = Pools(self.database, self.get)
        self.audits: Audits = Audits(self.database)
        self.quarantine: Quarantine = Quarantine(self.database, self.audits)
        self._snapshots = Snapshots(root / "snapshots", self.blobs)

    @property
    def partial(self) -> Path:
        """Where folders are built before they are published; what a killed process leaves there, gc deletes."""
        return self.blobs.partial

    @cached_property
    def _own_cards(self) -> "OwnCards":
        from kcard.hub.repositories.own_cards import OwnCards  # what asking does not need

        return OwnCards(self.database, self.blobs)

    def _read(self, sha256: str) -> bytes:
        return b"".join(self.blobs.read(sha256))

    def publish(self, folder: Path | str, *, aliases: Sequence[str] = ()) -> Version:
        """Publish a card folder: the files that its manifest names, and nothing else.

        The same manifest again is the version that is there already; its aliases are set and its damaged
        blobs replaced. Raises CardError for a folder that is no card or holds pickled weights, DamagedCard
        where a file is not as sealed, HubError where the disk or the database refuses.
        """
        from kcard.hub.safety import refuse_pickles

        folder = Path(folder).expanduser()
        for alias in aliases:
            check_alias(alias)
        manifest = Manifest.read(folder)
        check_files(folder, manifest)
        refuse_pickles(manifest, lambda path: (folder / path).open("rb"))
        with explained(f"can't publish {folder}"):
            text = (folder / MANIFEST).read_bytes().decode()
            if Manifest.from_json(text) != manifest:
                raise HubError(
                    f"{folder} was sealed again while it was being published: publish it once more"
                )
            sweep(self.blobs.partial)
            return self._store(folder, manifest, text, aliases)

    def _store(self, folder: Path, manifest: Manifest, text: str, aliases: Sequence[str]) -> Version:
        # Blobs first, then rows, so that a version that can be found is complete. A removal at the same
        # moment may take a blob that no row names yet: it is put again once nobody else can write.
        files = {**manifest.files, MANIFEST: hashlib.sha256(text.encode()).hexdigest()}
        published = False
        try:
            blobs = {path: put(self.blobs, folder / path, sha256) for path, sha256 in files.items()}
            reach("publish.stored")
            version = self._own_cards.add(
                text,
                blobs,
                aliases,
                lambda path: (folder / path).read_bytes(),
                lambda: self._put_again(folder, files),
            )
            published = True
            return version
        finally:
            if not published:
                self.gc()

    def _put_again(self, folder: Path, files: Mapping[str, str]) -> None:
        for path, sha256 in files.items():
            if not self.blobs.holds(sha256):
                put(self.blobs, folder / path, sha256)

    def get(self, ref: str) -> Version:
        """The version named by card (the newest), card@v2, card@alias or card@sha256 (6 digits or more).

        Raises UnknownCard, which names near matches, and UsageError for what can't be a reference.
        """
        wanted = Reference.parse(ref)
        found = self.versions(wanted.name)
        matches = [v for v in found if wanted.names(v)] if "@" in ref else found[-1:]
        if len(matches) > 1:
            same = ", ".join(v.reference for v in matches)
            raise UnknownCard(f"{ref!r} names more than one version ({same}): give more digits")
        if not matches:
            raise UnknownCard(
                f"card {wanted.name!r} has no version {ref.partition('@')[2]!r}: it has {_known(found)}"
            )
        return matches[0]

    def versions(self, name: str) -> Versions:
        """Every version of a card, oldest first; UnknownCard for a name that the hub doesn't hold."""
        return self._catalogue.versions(name) or self._unknown(name)

    def _unknown(self, name: str) -> Versions:
        import difflib

        names = self._catalogue.names()
        near = difflib.get_close_matches(name, names, cutoff=0.5)
        hint = EMPTY if not names else "`kcard cards list` shows what there is"
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        raise UnknownCard(f"unknown card {name!r}: {hint}")

    def select(self, selection: Sequence[str] | None) -> Selection:
        """The versions that a user's selection means, without repeats, in the order given.

        An item is a reference, a pool (pool:NAME) or, where it ends in "/", a domain subtree; None means the
        newest version of every card. Of these, quarantined versions that no reference names are left out, and
        told of. Raises UnknownCard where an item matches nothing, UsageError where two versions of one card are
        named (in an answer they could not be told apart), HubError where the hub is empty or all are left out.
        """
        return select(self, selection)

    def resolve(self, selection: Sequence[str] | None) -> Versions:
        """The versions to be used, as `select` finds them; raises what it raises."""
        return [*select(self, selection).versions]

    def folder(self, ref: str) -> Path:
        """A folder with the version's files, every byte verified now, for from_pretrained: not to be changed.

        Raises DamagedCard, which names the file.
        """
        version = self.get(ref)
        with explained(f"can't lay out {version.reference}"):
            return self._snapshots.folder(version)

    def open(self, ref: str, path: str) -> BinaryIO:
        """One file of a version, verified, without laying out the others; the caller closes it.

        Raises HubError where the version has no such file, DamagedCard where it is not as published.
        """
        version = self.get(ref)
        if (sha256 := version.files.get(path)) is None:
            raise HubError(
                f"card {version.reference} has no file {path!r}: it has {', '.join(version.files)}"
            )
        try:
            return verified(self.blobs, sha256)
        except DamagedCard as error:
            raise damaged(version, path, "missing or damaged") from error

    def pull(self, ref: str, destination: Path | str) -> Path:
        """Copy a version to a new folder, verified, whole or not at all; the folder is the caller's own.

        Raises UsageError where the destination exists and is not an empty folder.
        """
        version = self.get(ref)
        with explained(f"can't pull {version.reference}"):
            return self._snapshots.copy(version, Path(destination))

    def alias(self, ref: str, alias: str) -> Version:
        """Let card@alias name this version, and no other version of the card any more."""
        check_alias(alias)
        version = self._own_cards.alias(self.get(ref), alias)
        if version is None:
            raise UnknownCard(f"{ref} was removed just now")
        return version

    def remove(self, ref: str) -> Versions:
        """Remove a card with all its versions, or one version of it; returns what was removed.

        Files that other versions share stay. A number is not given again while the card exists.
        """
        gone = self._meant(ref)
        self._own_cards.remove(gone)
        with explained(f"removed {ref}, but can't delete its files"):
            self.gc()
        return gone

    def gc(self, *, dry_run: bool = False) -> Garbages:
        """Delete what nothing needs: files, snapshots, remains of killed processes; returns what it was.

        With `dry_run` nothing is deleted. What another process is writing just now is left alone, and so is what
        was uploaded to a shared hub in the last day.
        """
        from kcard.hub.garbage import collect

        with explained(f"can't clean up {self.home}"):
            return collect(self.database, self.blobs, self._snapshots, dry_run=dry_run)

    def info(self) -> Contents:
        """How much is in the hub."""
        found = self._catalogue.versions()
        sizes = dict(self.blobs.sizes())
        return Contents(
            path=self.home / "hub",
            database=self.database.name,
            blobs=self.blobs.where(),
            cards=len({version.name for version in found}),
            versions=len(found),
            pools=len(self.pools.list()),
            files=len(sizes),
            size=sum(sizes.values()),
        )

    def backup(self, path: Path | str, report: Report | None = None) -> Path:
        """Write the whole hub into one new tar file, as it is at one moment, while others go on publishing.

        The file appears whole or not at all. `report` is told the bytes done. Raises UsageError where the
        file exists, DamagedCard where a file of the hub is damaged.
        """
        from kcard.hub.backup import save

        with explained(f"can't write the backup {path}"):
            return save(Path(path), self.database, self.blobs, report)

    def restore(self, path: Path | str, report: Report | None = None) -> Versions:
        """Fill this hub, which must be empty, from a backup; returns every version.

        Every sha256 is checked before anything can be found. Raises HubError where the hub holds something
        or the file is no whole backup; then nothing has changed.
        """
        from kcard.hub.restore import load

        restored = False
        try:
            with explained(f"can't restore {path}"):
                load(Path(path), self.database, self.blobs, report)
            restored = True
            return self._catalogue.versions()
        finally:
            if not restored:
                self.gc()

    def verify(self, ref: str | None = None) -> list[Problem]:
        """What is missing or damaged in one version, in all versions of a card, or in the whole hub."""
        faults: dict[str, str | None] = {}
        problems = []
        for version in self._catalogue.versions() if ref is None else self._meant(ref):
            for path, sha256 in version.files.items():
                if sha256 not in faults:
                    faults[sha256] = fault(self.blobs, sha256)
                if what := faults[sha256]:
                    problems.append(Problem(version.name, version.number, path, what))
        return problems

    def _meant(self, ref: str) -> Versions:
        """Every version for a bare card name, the one named otherwise."""
        return [self.get(ref)] if "@" in ref else self.versions(ref)

    def __iter__(self) -> Iterator[Version]:
        """The newest version of every card, by name."""
        return iter(self.list())

    def __len__(self) -> int:
        """How many cards there are."""
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        """Whether there is a card of that name."""
        return bool(self._catalogue.versions(str(name)))

    def list(self, text: str | None = None, domain: str | None = None, base: str | None = None) -> Versions:
        """The newest version of every card, by name.

        `text`: words that all occur in name, description or domain, whatever their case. `domain`: that
        domain and those below it. `base`: the base model's name, with or without its organisation.
        """
        found = self._catalogue.newest(None if domain is None else domain.rstrip("/"), base)
        words = (text or "").casefold().split()
        return [v for v in found if all(word in _searched(v) for word in words)]


def _searched(version: Version) -> str:
    manifest = version.manifest
    return f"{version.name}\n{manifest.description}\n{manifest.domain}".casefold()


def _known(found: Sequence[Version]) -> str:
    names = [f"v{v.number}" + "".join(f" ({alias})" for alias in v.aliases) for v in found[-5:]]
    return ("… " if len(found) > 5 else "") + ", ".join(names)
