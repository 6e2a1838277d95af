"""Fills a hub from an untrusted backup.

No name in it becomes a path on disk. Every digest is checked, and every manifest must pass the checks for publishing,
before the first row is written.
"""

import hashlib
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from kcard.errors import CardError, DamagedCard, HubError, UsageError
from kcard.hub.backup import BLOBS, DATABASE, SUMS, Counted, Report, member
from kcard.hub.checks.paths import check_path, check_tree
from kcard.hub.records.copying import copy_rows, filled
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import commits, holdings, repositories, versions
from kcard.hub.repositories import own_namespace, stored_trees, usage
from kcard.hub.repositories.blob_references import kept
from kcard.hub.repositories.catalogue import Catalogue
from kcard.hub.repositories.own_namespace import OwnNamespace
from kcard.hub.repositories.stored_trees import Stored, StoredTree
from kcard.hub.repositories.trees import Tree
from kcard.hub.safety import refuse_pickles
from kcard.hub.store.blobs import Blobs, put_stream
from kcard.hub.store.disk import Readable, copy_hashing, partial_folder
from kcard.manifest import MANIFEST, Manifest

__all__ = ["inconsistent", "load"]

LINE = re.compile(rf"([0-9a-f]{{64}})  ({re.escape(DATABASE)}|{BLOBS}/[0-9a-f]{{2}}/[0-9a-f]{{64}})")
LONGEST_SUMS = 1 << 28  # bytes; a list of two million files


def load(path: Path, database: Database, blobs: Blobs, report: Report | None) -> None:
    """See Hub.restore."""
    with database.read() as connection:
        _require_empty(connection, database)
    with _opened(path) as tar, partial_folder(blobs.partial) as held:
        digests = _sums(tar, path)
        source = _database(tar, digests, held / "hub.db", path)
        with source.read() as connection:
            files = set(kept(connection))
        missing = files - set(digests.values())
        if missing:
            raise HubError(
                f"{path} is an incomplete backup: {len(missing)} files of its cards are not listed"
            )
        _put(tar, files, blobs, path, report)
        _check_trees(source, path)
        _check_cards(source, blobs, path)
        with database.write() as connection:
            _require_empty(connection, database)
            _put(tar, {sha256 for sha256 in files if not blobs.holds(sha256)}, blobs, path, None)
            with source.read() as rows:
                copy_rows(rows, connection)
            usage.recount(connection)


def _require_empty(connection: Connection, database: Database) -> None:
    if there := filled(connection):
        contents = " and ".join(f"{count} {name}" for name, count in there.items())
        raise HubError(
            f"the hub in {database.name} is not empty ({contents}): set KCARD_HOME to a new folder, or "
            "KCARD_DATABASE_URL to a new database"
        )


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, mode="r:") as tar:
            yield tar
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except tarfile.TarError as error:
        raise HubError(f"{path} is not a complete kcard backup: {error}") from error


def _sums(tar: tarfile.TarFile, path: Path) -> dict[str, str]:
    """sha256 by name of every file in the backup, which must be these regular files only."""
    first = tar.next()
    if first is None or first.name != SUMS or not first.isreg() or first.size > LONGEST_SUMS:
        raise HubError(f"{path} is not a kcard backup: it does not start with {SUMS}")
    lines = [LINE.fullmatch(line) for line in _text(tar, first, path).splitlines()]
    listed = {match[2]: match[1] for match in lines if match is not None}
    if None in lines or any(name != DATABASE and name != member(sha) for name, sha in listed.items()):
        raise HubError(f"{path} is not a kcard backup: its {SUMS} lists other files than a hub's")
    there = [m.name if m.isreg() else f"{m.name} (not a file)" for m in tar if m.name != SUMS]
    for name in there:
        if name not in listed:
            raise HubError(f"{path} is not a kcard backup: it contains {name!r}, which {SUMS} does not list")
    if len(there) != len(listed):
        raise HubError(
            f"{path} is not a complete kcard backup: it has {len(there)} of the {len(listed)} files in {SUMS}"
        )
    return listed


def _text(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    stream = tar.extractfile(member)
    try:
        return "" if stream is None else stream.read().decode("ascii")
    except UnicodeDecodeError:
        raise HubError(f"{path} is not a kcard backup: {SUMS} is not text") from None


def _database(tar: tarfile.TarFile, digests: Mapping[str, str], target: Path, path: Path) -> Database:
    """The backup's database as a local file, verified, and migrated if it is older."""
    if DATABASE not in digests:
        raise HubError(f"{path} is not a complete kcard backup: {DATABASE} is missing")
    with _stream(tar, DATABASE) as stream:
        found, _ = copy_hashing(stream, target)
    if found != digests[DATABASE]:
        raise HubError(f"{path} is damaged: {DATABASE} does not match its sha256")
    return Database(target)


@contextmanager
def _stream(tar: tarfile.TarFile, name: str) -> Iterator[Readable]:
    stream = tar.extractfile(name)
    assert stream is not None  # a regular file, by _sums
    with stream:
        yield stream


def _put(tar: tarfile.TarFile, files: set[str], blobs: Blobs, path: Path, report: Report | None) -> None:
    done = 0
    for sha256 in sorted(files):
        with _stream(tar, member(sha256)) as stream:
            counted = Counted(stream, done, report)
            try:
                put_stream(blobs, counted, sha256, f"{path}: {member(sha256)}")
            except DamagedCard as error:
                raise HubError(f"{error}; nothing was restored") from error
        done = counted.done


def _check_cards(source: Database, blobs: Blobs, path: Path) -> None:
    """The checks for publishing: safe paths, no pickles, a manifest that lists the files."""
    try:
        for version in Catalogue(source).versions():
            files = version.files
            refuse_pickles(version.manifest, lambda name, files=files: blobs.open(files[name]))  # type: ignore[misc]
        strange = inconsistent(source)
    except CardError as error:
        raise HubError(f"{path}: {error}; nothing was restored") from error
    if strange:
        raise HubError(f"{path}: {strange[0]} does not match its manifest; nothing was restored")


def _check_trees(source: Database, path: Path) -> None:
    """The checks of a commit: safe paths that don't conflict, of files that exist."""
    with source.read() as connection:
        for repository in connection.scalars(select(commits.c.repository_id).distinct()).all():
            theirs = select(holdings.c.sha256).where(holdings.c.repository_id == repository)
            held = set(connection.scalars(theirs))
            try:
                for sha, new in _new_files(connection, repository):
                    if any(entry.sha256 not in held for entry in new.values()):
                        raise HubError(f"commit {sha} has unlisted files")
            except HubError as error:
                raise HubError(f"{path}: {error}; nothing was restored") from error


def _new_files(connection: Connection, repository: int) -> Iterator[tuple[str, Tree]]:
    """Each commit with the files that its stored tree sets, after checks of their paths.

    Most commits follow their parent, whose tree then is not read again.
    """
    columns = (commits.c.sha, commits.c.parent, commits.c.tree, commits.c.delta)
    rows = select(*columns).where(commits.c.repository_id == repository).order_by(commits.c.id)
    last, tree = None, Tree()
    for row in connection.execute(rows.execution_options(yield_per=20)):
        stored, known = Stored(row.tree, row.delta), set[str]()
        try:
            if row.delta and last is not None and row.parent == last:
                known.update(tree)
                new = stored_trees.apply(tree, stored)
            else:
                found = stored_trees.find(connection, repository, row.sha)
                assert found is not None  # as just read
                tree, new = found.tree, stored_trees.changed(stored)[0]
            for each in new:
                check_path(each)
            if not new.keys() <= known:
                check_tree(tree)
        except HubError as error:
            raise HubError(f"commit {row.sha}: {error}") from error
        last = row.sha
        yield row.sha, new


def inconsistent(database: Database) -> list[str]:
    """References of versions whose rows do not match their manifest."""
    query = select(repositories.c.name, versions).join_from(versions, repositories)
    with database.read() as connection:
        own = own_namespace.find(connection)
        rows = connection.execute(query.execution_options(yield_per=20))
        return sorted(
            f"{own_namespace.bare(own, row.name)}@v{row.number}"
            for row in rows
            if not _consistent(row, stored_trees.find(connection, row.repository_id, row.sha), own)
        )


def _consistent(row: Any, stored: StoredTree | None, own: OwnNamespace | None) -> bool:
    manifest, card = Manifest.from_json(row.manifest), own_namespace.bare(own, row.name)
    named = card == manifest.name or "/" in card  # cards in other namespaces are called namespace/name
    right = hashlib.sha256(row.manifest.encode()).hexdigest() == row.sha256
    files = {} if stored is None else {path: entry.sha256 for path, entry in stored.tree.items()}
    return named and right and {**manifest.files, MANIFEST: row.sha256}.items() <= files.items()
