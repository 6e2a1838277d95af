"""Published versions of cards, the quarantine, and snapshots of versions as folders."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from kcard.errors import DamagedCard, UnknownCard, UsageError
from kcard.hub import figures
from kcard.hub.accounts import bare_name, find_own_namespace, fold_name, full_name, write_event
from kcard.hub.db.models import audits, now, refs, repositories, settings, utc
from kcard.hub.db.models import versions as version_table
from kcard.hub.db.session import Database
from kcard.hub.errors import Invalid
from kcard.hub.figures import COVERAGE, THRESHOLD, check_share, read_limits
from kcard.hub.storage import Blobs, create_folder, discard, partial_folder
from kcard.hub.values import (
    BRANCH,
    MAIN,
    DeclaredFigures,
    QuarantineReason,
    Repository,
    VerifiedFigures,
    quarantine_reason,
)
from kcard.manifest import MANIFEST, NAME, Manifest, file_digest

__all__ = [
    "NUMBER",
    "CardReference",
    "FileProblem",
    "HubContents",
    "Quarantine",
    "Snapshots",
    "Version",
    "VersionCatalogue",
    "VersionKey",
    "check_alias",
    "damaged_file",
    "declared_figures",
    "find_key",
    "find_newest_versions",
    "find_versions",
    "is_card",
    "is_newest",
    "is_unexamined",
]


NUMBER = re.compile(r"v([1-9][0-9]{0,8})")
DIGEST = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True)
class Version:
    """One immutable version of a card.

    number      from 1, never reused while the card exists
    sha256      of kcard.json, which lists the sha256 of every other file
    size        bytes of all files
    published   in UTC
    declared    figures of the exam that came with the card; None without one
    verified    figures that this hub measured; None without any
    unexamined  whether it has weights, but no plausible exam
    """

    name: str
    number: int
    sha256: str
    manifest: Manifest
    size: int
    published: datetime
    aliases: tuple[str, ...] = ()
    declared: DeclaredFigures | None = None
    verified: VerifiedFigures | None = None
    unexamined: bool = False

    @property
    def reference(self) -> str:
        """The permanent reference of this version: card@v2."""
        return f"{self.name}@v{self.number}"

    @property
    def files(self) -> dict[str, str]:
        """sha256 of every file by path, including the manifest."""
        return {**self.manifest.files, MANIFEST: self.sha256}


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


@dataclass(frozen=True)
class CardReference:
    """A parsed reference. At most one of number, digest and alias is set; none means the newest version.

    `digest` is a prefix of a version's sha256.
    """

    name: str
    number: int | None = None
    digest: str | None = None
    alias: str | None = None

    @classmethod
    def parse(cls, text: str) -> "CardReference":
        """Parse a reference. Raises UsageError if it is invalid."""
        name, at, rest = text.partition("@")
        if not name or (at and not rest):
            raise UsageError(
                f"invalid reference {text!r}: use CARD, CARD@v2, CARD@ALIAS or CARD@SHA256 (6 digits or more)"
            )
        if not at:
            return cls(name)
        if match := NUMBER.fullmatch(rest):
            return cls(name, number=int(match[1]))
        return cls(name, digest=rest) if DIGEST.fullmatch(rest) else cls(name, alias=rest)

    def names(self, version: Version) -> bool:
        """Return whether the reference's number, digest or alias is that of the version."""
        if self.digest is not None:
            return version.sha256.startswith(self.digest)
        return version.number == self.number or self.alias in version.aliases


def check_alias(alias: str) -> None:
    """Raise UsageError for an invalid alias, or one that looks like a version number or a sha256."""
    if not NAME.fullmatch(alias):
        raise UsageError(
            f"invalid alias {alias!r}: use at most 96 lower-case letters, digits, '.', '_' and '-'"
        )
    if NUMBER.fullmatch(alias) or DIGEST.fullmatch(alias):
        raise UsageError(f"alias {alias!r} looks like a version number or a sha256: choose another")
    if alias == MAIN:
        raise UsageError(f"alias {alias!r} is reserved for the newest version: choose another")


def damaged_file(version: Version, path: str, fault: str) -> DamagedCard:
    """Return the error for a file of a version that is missing or damaged, as `fault` says."""
    return DamagedCard(
        f"card {version.reference}: {path} is {fault} in the hub: `kcard verify {version.name}` lists all damage; "
        f"publish the card's folder again, or pull it again"
    )


# Rows of versions.


class VersionKey(NamedTuple):
    """The ids of a version and its repository, and its commit."""

    id: int
    repository_id: int
    sha: str


def is_card(connection: Connection, card: str) -> ColumnElement[bool]:
    """Return the condition on `repositories` for that of a card."""
    name = full_name(find_own_namespace(connection), card)
    # The index is on the folded name; cards are named by their exact one.
    same = and_(repositories.c.folded == fold_name(name), repositories.c.name == name)
    return and_(repositories.c.type == "model", same)


def is_newest() -> ColumnElement[bool]:
    """Return the condition on `versions` for the newest one of each card."""
    other = version_table.alias()
    highest = select(func.max(other.c.number)).where(other.c.repository_id == version_table.c.repository_id)
    return version_table.c.number == highest.scalar_subquery()


def find_versions(connection: Connection, *conditions: ColumnElement[bool]) -> list[Version]:
    """Return the versions that match, by card name, oldest first."""
    # One row for each version and each branch, other than main, that is at its commit: an alias.
    own = find_own_namespace(connection)
    pointing = and_(
        refs.c.repository_id == version_table.c.repository_id,
        refs.c.kind == BRANCH,
        refs.c.name != MAIN,
        refs.c.sha == version_table.c.sha,
    )
    joined = version_table.join(repositories).outerjoin(refs, pointing)
    columns = (repositories.c.name.label("repository"), version_table, refs.c.name.label("alias"))
    query = select(*columns).select_from(joined).order_by(version_table.c.id, refs.c.name)
    rows = connection.execute(query.where(*conditions)).all()
    verified = figures.verified_by_version(connection, {row.id for row in rows})
    # One value for each version, with all its aliases.
    grouped = groupby(rows, key=lambda row: row.id)
    matching = []
    for id_, same in grouped:
        row, *others = same
        name = bare_name(own, row.repository)
        version = Version(
            name=name,
            number=row.number,
            sha256=row.sha256,
            manifest=Manifest.from_json(row.manifest, f"{name}@v{row.number}"),
            size=row.size,
            published=utc(row.published),
            aliases=tuple(r.alias for r in (row, *others) if r.alias is not None),
            declared=declared_figures(row),
            verified=verified.get(id_),
            unexamined=is_unexamined(row),
        )
        matching.append(version)
    return sorted(matching, key=lambda version: (version.name, version.number))


def find_key(connection: Connection, version: Version) -> VersionKey | None:
    """Return the key of a version; None if it was removed."""
    columns = (version_table.c.id, version_table.c.repository_id, version_table.c.sha)
    query = select(*columns).join_from(version_table, repositories).where(is_card(connection, version.name))
    row = connection.execute(query.where(version_table.c.sha256 == version.sha256)).one_or_none()
    return None if row is None else VersionKey(*row)


def declared_figures(row: Row[Any]) -> DeclaredFigures | None:
    """Return the self-declared figures of a row of `versions`."""
    return DeclaredFigures(row.recall, row.factuality, row.fault, row.coverage) if row.examined else None


def is_unexamined(row: Row[Any]) -> bool:
    """Return whether a row of `versions` has weights, but no plausible exam."""
    return bool(row.weights and (not row.examined or row.fault))


# The newest versions of many repositories at once.


def find_newest_versions(database: Database, repositories: Iterable[Repository]) -> dict[str, Version]:
    """Return the newest version of each repository that has one, by the repository's name."""
    ids = [repository.id for repository in repositories]
    with database.read() as connection:
        own = find_own_namespace(connection)
        newest_versions = find_versions(connection, is_newest(), version_table.c.repository_id.in_(ids))
    return {full_name(own, version.name): version for version in newest_versions}


# Quarantine: cards below the hub's factuality threshold are visible, but used only if named.
#
# The latest audit decides that measured the version's factuality against independent evidence, which covers enough of
# what the card generated, unless an administrator has released the version since. Without such an audit, the card's own
# exam decides: it can quarantine the card but never release it. Unmeasured cards are not quarantined, and neither are
# cards whose evidence covers less than the hub's floor: missing evidence does not make a claim false.


class Quarantine:
    """The threshold of a hub, and the versions below it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def threshold(self) -> float | None:
        """The least factuality, in [0, 1], of cards that are used without being named; None (default): no minimum."""
        with self._database.read() as connection:
            return read_limits(connection)[0]

    @property
    def coverage(self) -> float:
        """The share of a card's documents that evidence must cover to quarantine it, in [0, 1]; 0.5 by default."""
        with self._database.read() as connection:
            return read_limits(connection)[1]

    def set_coverage(self, floor: float, *, by: str | None = None) -> None:
        """Set the floor of coverage. Raises UsageError for one outside [0, 1]."""
        check_share(floor, "coverage", "")
        with self._database.write() as connection:
            connection.execute(delete(settings).where(settings.c.name == COVERAGE))
            connection.execute(insert(settings).values(name=COVERAGE, value=f"{floor:g}"))
            write_event(connection, by, "quarantine.set", "hub", coverage=floor)

    def set(self, threshold: float | None, *, by: str | None = None) -> None:
        """Set the threshold of this hub. Raises UsageError for one outside [0, 1].

        `by`: the account that changes it, for the event log; None: the command line.
        """
        if threshold is not None:
            check_share(threshold)
        with self._database.write() as connection:
            connection.execute(delete(settings).where(settings.c.name == THRESHOLD))
            if threshold is not None:
                connection.execute(insert(settings).values(name=THRESHOLD, value=f"{threshold:g}"))
            write_event(connection, by, "quarantine.set", "hub", threshold=threshold)

    def release(self, version: Version, *, by: str | None = None) -> None:
        """Release a version from the quarantine of its latest audit. A later audit may quarantine it again.

        Raises UnknownCard if the version was removed, Invalid if no audit quarantines it.
        """
        with self._database.write() as connection:
            row = find_key(connection, version)
            if row is None:
                raise UnknownCard(f"{version.reference} was removed by another process")
            [current] = find_versions(connection, version_table.c.id == row.id)
            limit, floor = read_limits(connection)
            reason = quarantine_reason(current.declared, current.verified, limit, floor)
            if reason is None:
                raise Invalid(f"{version.reference} is not quarantined")
            if reason.audit is None:
                raise Invalid(
                    f"{version.reference} is quarantined by its own exam, not by an audit of this hub: publish a "
                    "version with a new exam, or audit it (`kcard audit`)"
                )
            connection.execute(update(audits).where(audits.c.id == reason.audit).values(released=now()))
            write_event(connection, by, "card.released", version.reference, audit=reason.audit)

    def find_reasons(self, candidates: Sequence[Version]) -> dict[str, QuarantineReason]:
        """Return why versions are quarantined, by reference, judged by their own figures; others are omitted."""
        if not candidates:
            return {}
        with self._database.read() as connection:
            limit, floor = read_limits(connection)
        reasons = {v.reference: quarantine_reason(v.declared, v.verified, limit, floor) for v in candidates}
        return {reference: reason for reference, reason in reasons.items() if reason is not None}


# Queries for versions.


class VersionCatalogue:
    """Lists the versions of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def names(self) -> list[str]:
        """Return every card's name, sorted."""
        query = select(repositories.c.name).where(
            exists().where(version_table.c.repository_id == repositories.c.id)
        )
        with self._database.read() as connection:
            own = find_own_namespace(connection)
            return sorted(bare_name(own, name) for name in connection.scalars(query))

    def versions(self, name: str | None = None) -> list[Version]:
        """Return every version of a card, or of all cards, oldest first."""
        with self._database.read() as connection:
            return find_versions(connection, *([] if name is None else [is_card(connection, name)]))

    def newest(self, domain: str | None = None, base: str | None = None) -> list[Version]:
        """Return the newest version of every card, if it is in the domain subtree and has the base."""
        conditions: list[ColumnElement[bool]] = [is_newest()]
        if domain is not None:
            inside = version_table.c.domain.startswith(domain + "/", autoescape=True)
            conditions.append(or_(version_table.c.domain == domain, inside))
        if base is not None:
            short = version_table.c.base.endswith("/" + base, autoescape=True)
            conditions.append(or_(version_table.c.base == base, short))
        with self._database.read() as connection:
            return find_versions(connection, *conditions)


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
                        raise damaged_file(version, path, "missing")
                    try:
                        self.blobs.materialize(sha256, file)
                    except DamagedCard as error:
                        raise damaged_file(version, path, str(error)) from None
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
                raise damaged_file(version, path, "missing")
            return self.blobs.open(sha256)

        return create_folder(destination, version.files, opened, partial(damaged_file, version))

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
