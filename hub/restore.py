"""A hub filled from a backup, which is trusted in nothing.

A name in it never becomes a path on the disk, every digest is checked, and every manifest passes what a
published one must pass, before the first row is written.
"""

import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, delete, func, insert, select

from kcard.errors import CardError, DamagedCard, HubError, UsageError
from kcard.faults import reach
from kcard.hub.backup import BLOBS, DATABASE, SUMS, Counted, Report, member
from kcard.hub.catalogue import Catalogue
from kcard.hub.database import Database
from kcard.hub.disk import Readable, copy_hashing, partial_folder
from kcard.hub.safety import refuse_pickles
from kcard.hub.store import BlobStore
from kcard.hub.tables import cards, metadata, pools, settings

__all__ = ["load"]

LINE = re.compile(rf"([0-9a-f]{{64}})  ({re.escape(DATABASE)}|{BLOBS}/[0-9a-f]{{2}}/[0-9a-f]{{64}})")
LONGEST_SUMS = 1 << 28  # bytes; a list of two million files


def load(path: Path, database: Database, blobs: BlobStore, report: Report | None) -> None:
    """See Hub.restore."""
    with database.read() as connection:
        _require_empty(connection, database)
    with _opened(path) as tar, partial_folder(blobs.partial) as held:
        digests = _sums(tar, path)
        source = _database(tar, digests, held / "hub.db", path)
        with Catalogue(source).referenced() as (files, _):
            missing = files - set(digests.values())
        if missing:
            raise HubError(f"{path} is not a whole backup: {len(missing)} files of its cards are not listed")
        _put(tar, files, blobs, path, report)
        _check_cards(Catalogue(source), blobs, path)
        reach("restore.stored")
        with database.write() as connection:
            _require_empty(connection, database)
            _put(tar, {sha256 for sha256 in files if not blobs.holds(sha256)}, blobs, path, None)
            _copy_rows(source, connection)


def _require_empty(connection: Connection, database: Database) -> None:
    there = {
        table.name: connection.scalar(select(func.count()).select_from(table)) or 0
        for table in (cards, pools)
    }
    if any(there.values()):
        raise HubError(
            f"the hub in {database.path.parent} holds {there['cards']} cards and {there['pools']} pools: restore "
            "into an empty one (set KCARD_HOME to a new folder)"
        )


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, mode="r:") as tar:
            yield tar
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except tarfile.TarError as error:
        raise HubError(f"{path} is not a whole kcard backup: {error}") from error


def _sums(tar: tarfile.TarFile, path: Path) -> dict[str, str]:
    """sha256 by name of every file in the backup: of just these, and regular files."""
    first = tar.next()
    if first is None or first.name != SUMS or not first.isreg() or first.size > LONGEST_SUMS:
        raise HubError(f"{path} is not a kcard backup: it does not begin with {SUMS}")
    lines = [LINE.fullmatch(line) for line in _text(tar, first, path).splitlines()]
    listed = {match[2]: match[1] for match in lines if match is not None}
    if None in lines or any(name != DATABASE and name != member(sha) for name, sha in listed.items()):
        raise HubError(f"{path} is not a kcard backup: its {SUMS} lists something else than a hub's files")
    there = [m.name if m.isreg() else f"{m.name} (no file)" for m in tar if m.name != SUMS]
    for name in there:
        if name not in listed:
            raise HubError(f"{path} is not a kcard backup: it holds {name!r}, which {SUMS} does not list")
    if len(there) != len(listed):
        raise HubError(
            f"{path} is not a whole kcard backup: {SUMS} lists {len(listed)} files, {len(there)} are there"
        )
    return listed


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    stream = tar.extractfile(member)
    try:
        return "" if stream is None else stream.read().decode("ascii")
    except UnicodeDecodeError:
        raise HubError(f"{path} is not a kcard backup: its {SUMS} is not text") from None


def _database(tar: tarfile.TarFile, digests: Mapping[str, str], target: Path, path: Path) -> Database:
    """The backup's database as a file of ours, verified and migrated."""
    if DATABASE not in digests:
        raise HubError(f"{path} is not a whole kcard backup: it has no {DATABASE}")
    with _stream(tar, DATABASE) as stream:
        found, _ = copy_hashing(stream, target)
    if found != digests[DATABASE]:
        raise HubError(f"{path} is damaged: {DATABASE} is not as it was backed up")
    reach("restore.database")
    return Database(target)


@contextmanager
def _stream(tar: tarfile.TarFile, name: str) -> Iterator[Readable]:
    stream = tar.extractfile(name)
    assert stream is not None  # a regular file, by _sums
    with stream:
        yield stream


def _put(tar: tarfile.TarFile, files: set[str], blobs: BlobStore, path: Path, report: Report | None) -> None:
    done = 0
    for sha256 in sorted(files):
        with _stream(tar, member(sha256)) as stream:
            counted = Counted(stream, done, report)
            try:
                blobs.put_stream(counted, sha256, f"{path}: {member(sha256)}")
            except DamagedCard as error:
                raise HubError(f"{error}; nothing was restored") from error
        done = counted.done


def _check_cards(catalogue: Catalogue, blobs: BlobStore, path: Path) -> None:
    """The same that a published folder must pass: plain paths, no pickles, a manifest that names its files."""
    try:
        for version in catalogue.versions():
            files = version.files
            refuse_pickles(version.manifest, lambda name, files=files: blobs.path(files[name]))  # type: ignore[misc]
        strange = catalogue.inconsistent()
    except CardError as error:
        raise HubError(f"{path}: {error}; nothing was restored") from error
    if strange:
        raise HubError(f"{path}: {strange[0]} is not what its manifest says; nothing was restored")


def _copy_rows(source: Database, connection: Connection) -> None:
    connection.execute(delete(settings))  # those of the backup take the place of an empty hub's own
    with source.read() as reader:
        for table in metadata.sorted_tables:
            if rows := [dict(row) for row in reader.execute(select(table)).mappings()]:
                connection.execute(insert(table), rows)
            reach("rows.table")
