"""Back up a hub, and restore it.

SHA256SUMS         the sha256 of every file below, for `sha256sum --check`
hub/hub.db         the database, as SQLite, with accounts and the digests of their tokens, without the hub's secret
hub/blobs/ab/ab…   every file of every commit; no uncommitted uploads
"""

import hashlib
import io
import json
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NoReturn, TypeAlias

from sqlalchemy import Integer, delete, func, insert, select, text, update
from sqlalchemy.orm import Session, undefer

from kcard.errors import CardError, DamagedCard, HubError, UsageError
from kcard.hub import trees
from kcard.hub.accounts import bare_name, find_own_namespace
from kcard.hub.checks.formats import PICKLE, check_path, check_tree
from kcard.hub.db.models import (
    SECRET,
    Account,
    BrowserSession,
    Commit,
    Holding,
    HubSetting,
    LoggedEvent,
    PublishedTag,
    Repository,
    Reservation,
    SearchClock,
    SearchRow,
    StoredPool,
    StoredRun,
    StoredVerdict,
    Upload,
    Version,
    metadata,
)
from kcard.hub.db.session import Database
from kcard.hub.garbage import find_referenced, repository_blobs
from kcard.hub.quotas import recount
from kcard.hub.storage import (
    Blobs,
    Readable,
    copy_hashing,
    discard,
    open_private,
    partial_folder,
    partial_sibling,
    sync_folder,
)
from kcard.hub.trees import EncodedTree, Tree
from kcard.hub.versions import list_all, select_versions
from kcard.manifest import MANIFEST, Manifest, file_digest

# Copies of all rows of a hub, from one database to another of any kind.

CHUNK = 200  # rows; one may have a tree of thousands of files
# Sessions of browsers; uploads in progress, whose bytes are in no backup; verdicts, which a hub trusts only
# if it made them itself; and the clock, which only goes forward.
LEFT_OUT = {
    model.__tablename__ for model in (BrowserSession, Upload, Reservation, StoredVerdict, SearchClock)
}


def copy_rows(source: Session, target: Session) -> None:
    """Copy every table to a database for which `count_contents` returns nothing.

    Its settings, events, accounts and records of removed cards are replaced. Each database keeps its own secret.
    """
    target.execute(delete(HubSetting).where(HubSetting.name != SECRET))
    for model in (LoggedEvent, Account, PublishedTag):
        target.execute(delete(model))
    for table in metadata.sorted_tables:
        if table.name in LEFT_OUT:
            continue
        query = select(table)
        if table.name == HubSetting.__tablename__:
            query = query.where(table.c.name != SECRET)
        result = source.execute(query.execution_options(yield_per=CHUNK)).mappings()
        for rows in result.partitions():
            target.execute(insert(table), [dict(row) for row in rows])
        if target.get_bind().dialect.name == "postgresql" and "id" in table.c:
            # New rows must get ids after the copied ones.
            assert isinstance(table.c.id.type, Integer)
            highest = func.coalesce(func.max(table.c.id), 0) + 1
            sequence = func.pg_get_serial_sequence(table.name, "id")
            target.execute(select(func.setval(sequence, select(highest).scalar_subquery(), text("false"))))
    target.execute(update(SearchClock).values(changed=SearchClock.changed + 1))
    target.execute(update(SearchRow).values(changed=select(SearchClock.changed).scalar_subquery()))


def count_cards(session: Session) -> dict[str, int]:
    """Return the numbers of cards, versions and repositories."""
    counts = {
        "cards": select(func.count(Version.repository_id.distinct())),
        "versions": select(func.count()).select_from(Version),
        "repositories": select(func.count()).select_from(Repository),
    }
    return {name: session.scalar(count) or 0 for name, count in counts.items()}


def count_contents(session: Session) -> dict[str, int]:
    """Return the numbers of cards, pools, users, unpublished repositories and runs that are not zero."""
    published = select(Version.repository_id)
    counts = {
        "cards": select(func.count(Version.repository_id.distinct())),
        "pools": select(func.count()).select_from(StoredPool),
        "users": select(func.count()).where(Account.kind == "user"),
        "repositories": select(func.count()).where(Repository.id.not_in(published)),
        "runs": select(func.count()).select_from(StoredRun),
    }
    counted = {name: session.scalar(count) or 0 for name, count in counts.items()}
    return {name: count for name, count in counted.items() if count}


Report: TypeAlias = Callable[[int], object]

SUMS = "SHA256SUMS"
DATABASE = "hub/hub.db"
BLOBS = "hub/blobs"
ATTEMPTS = 5


@dataclass(frozen=True)
class Backup:
    """A backup and its contents: versions of cards, repositories, and `blobs` of `size` bytes."""

    path: Path
    cards: int
    versions: int
    repositories: int
    blobs: int
    size: int

    def __fspath__(self) -> str:
        return str(self.path)


class ProgressStream:
    """A stream that hashes what is read from it and reports its progress."""

    def __init__(self, stream: Readable, before: int, report: Report | None) -> None:
        self._stream, self._report = stream, report
        self.done = before
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        self.digest.update(block)
        self.done += len(block)
        if self._report is not None:
            self._report(self.done)
        return block


def save_backup(path: Path, database: Database, blobs: Blobs, report: Report | None) -> Backup:
    """Write a backup: see Hub.backup."""
    target = path.expanduser().absolute()
    if target.exists():
        raise UsageError(f"{target} already exists: choose a new file")
    with partial_folder(blobs.partial) as folder, partial_sibling(target) as scratch:
        for attempt in range(ATTEMPTS):
            try:
                counts = _write_backup(
                    folder / str(attempt), scratch / f"backup{attempt}", database, blobs, report
                )
                break
            except _FileRemoved:
                discard(folder / str(attempt))
                (scratch / f"backup{attempt}").unlink(missing_ok=True)
        else:
            raise HubError("cards were removed during the backup: try again when nobody removes cards")
        (scratch / f"backup{attempt}").rename(target)
        sync_folder(target.parent)
    return Backup(target, **counts)


class _FileRemoved(Exception):
    """A file was removed from the hub, with its versions, since the copy of the database."""


def _write_backup(
    folder: Path, target: Path, database: Database, blobs: Blobs, report: Report | None
) -> dict[str, int]:
    """Write the backup; return the counts of its contents. Raises _FileRemoved if it must start again."""
    # Copy the database to a folder, and hard-link its blobs there if the store can.
    (folder / "hub").mkdir(parents=True)
    copy = Database(folder / DATABASE)
    with database.read() as source:
        with copy.write() as rows:
            copy_rows(source, rows)
        blob_sizes, counts = dict(sorted(repository_blobs(source).items())), count_cards(source)
    copy.remove_write_ahead_log()
    for sha256 in blob_sizes:
        second = folder / blob_name(sha256)
        second.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not blobs.hard_link(sha256, second):
                break
        except DamagedCard:
            _raise_missing(sha256, database)
    # Write the sums, the database and the blobs into the archive.
    sizes = {DATABASE: (folder / DATABASE).stat().st_size} | {
        blob_name(sha): size for sha, size in blob_sizes.items()
    }
    digests = {DATABASE: file_digest(folder / DATABASE)} | {
        blob_name(sha256): sha256 for sha256 in blob_sizes
    }
    with open(target, "xb", opener=open_private) as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            sums = "".join(f"{sha256}  {name}\n" for name, sha256 in digests.items()).encode()
            info = tarfile.TarInfo(SUMS)
            info.size, info.mode = len(sums), 0o400
            tar.addfile(info, io.BytesIO(sums))
            done = 0
            for name, sha256 in digests.items():
                with _open_file(folder / name, sha256, database, blobs) as source:
                    done = _add_file(tar, name, sizes[name], sha256, ProgressStream(source, done, report))
        stream.flush()
        os.fsync(stream.fileno())
    return counts | {"blobs": len(blob_sizes), "size": sum(blob_sizes.values())}


def _raise_missing(sha256: str, database: Database) -> NoReturn:
    """Raise _FileRemoved if the hub no longer needs the blob, else DamagedCard."""
    with database.read() as session:
        if not find_referenced(session, [sha256]):
            raise _FileRemoved
    raise DamagedCard(f"blob {sha256[:12]}… is missing: `kcard verify` lists the affected cards")


@contextmanager
def _open_file(second: Path, sha256: str, database: Database, blobs: Blobs) -> Iterator[Readable]:
    """Yield a file of the backup, from its hard link or from the store."""
    if second.exists():
        with second.open("rb") as stream:
            yield stream
        return
    try:
        stored = blobs.open(sha256)
    except DamagedCard:
        _raise_missing(sha256, database)
    with stored:
        yield stored


def blob_name(sha256: str) -> str:
    """Return the name of a blob in the backup."""
    return f"{BLOBS}/{sha256[:2]}/{sha256}"


def _add_file(tar: tarfile.TarFile, name: str, size: int, sha256: str, counted: ProgressStream) -> int:
    """Add a file to the archive, checking its sha256; return the bytes done so far."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o400
    try:
        tar.addfile(info, counted)
    except OSError as error:
        if str(error) != "unexpected end of data":  # tarfile's error for a truncated file
            raise
    if counted.digest.hexdigest() != sha256:
        raise DamagedCard(f"{name} is damaged: `kcard verify` lists the affected cards")
    return counted.done


# Pickled weights, which can run code when loaded, are refused.

PICKLED = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
REMEDY = "save the weights as .safetensors (`save_pretrained` does) and seal the card again"


def refuse_pickles(manifest: Manifest, open_file: Callable[[str], BinaryIO]) -> None:
    """Raise CardError if a file of the manifest is a pickle, by name or content; `open_file` opens a path."""
    for path in manifest.files:
        if PurePosixPath(path).suffix.lower() in PICKLED:
            raise CardError(
                f"card {manifest.name!r}: {path} has the extension of pickled weights, which can run code: {REMEDY}"
            )
        with open_file(path) as stream:
            pickled = _is_pickle(stream)
        if pickled:
            raise CardError(f"card {manifest.name!r}: {path} contains a pickle, which can run code: {REMEDY}")


def _is_pickle(stream: BinaryIO) -> bool:
    """Return whether a file is a pickle, or a zip archive with one."""
    start = stream.read(9)
    if PICKLE.match(start):
        # Safetensors start with the length of their header, which may have the same bytes.
        size = stream.seek(0, 2)
        stream.seek(0)
        length = int.from_bytes(stream.read(8), "little")
        if length > size - 8:
            return True
        try:
            return not isinstance(json.loads(stream.read(length)), dict)
        except ValueError:
            return True
    if start.startswith(b"PK") and zipfile.is_zipfile(stream):  # torch.save writes a zip with data.pkl
        with zipfile.ZipFile(stream) as archive:
            return any(name.lower().endswith(".pkl") for name in archive.namelist())
    return False


# Fills a hub from an untrusted backup.
#
# No name in it is used as a path on disk. Before the first row is written, every digest is checked, and every manifest
# must pass the checks for publishing.

LINE = re.compile(rf"([0-9a-f]{{64}})  ({re.escape(DATABASE)}|{BLOBS}/[0-9a-f]{{2}}/[0-9a-f]{{64}})")
LONGEST_SUMS = 1 << 28  # bytes; a list of two million files


def load_backup(path: Path, database: Database, blobs: Blobs, report: Report | None) -> None:
    """Restore a backup: see Hub.restore."""
    with database.read() as session:
        _require_empty(session, database)
    with _open_backup(path) as tar, partial_folder(blobs.partial) as scratch:
        digests = _read_sums(tar, path)
        # The database, verified, and migrated if it is of an earlier version.
        if DATABASE not in digests:
            raise HubError(f"{path} is not a complete kcard backup: {DATABASE} is missing")
        with _open_member(tar, DATABASE) as stream:
            digest, _ = copy_hashing(stream, scratch / "hub.db")
        if digest != digests[DATABASE]:
            raise HubError(f"{path} is damaged: {DATABASE} does not match its sha256")
        source = Database(scratch / "hub.db")
        with source.read() as session:
            files = set(repository_blobs(session))
        missing = files - set(digests.values())
        if missing:
            raise HubError(
                f"{path} is an incomplete backup: {len(missing)} files of its cards are not listed"
            )
        _put_blobs(tar, files, blobs, path, report)
        # The checks of a commit: safe paths that don't conflict, of files that exist.
        with source.read() as session:
            for repository in session.scalars(select(Commit.repository_id).distinct()).all():
                theirs = select(Holding.sha256).where(Holding.repository_id == repository)
                available = set(session.scalars(theirs))
                try:
                    for sha, new in _new_files(session, repository):
                        if any(entry.sha256 not in available for entry in new.values()):
                            raise HubError(f"commit {sha} has unlisted files")
                except HubError as error:
                    raise HubError(f"{path}: {error}; nothing was restored") from error
        # The checks for publishing: safe paths, no pickles, a manifest that lists the files.
        try:
            for version in list_all(source):
                paths = version.files
                refuse_pickles(version.manifest, lambda name, paths=paths: blobs.open(paths[name]))  # type: ignore[misc]
            inconsistent = inconsistent_versions(source)
        except CardError as error:
            raise HubError(f"{path}: {error}; nothing was restored") from error
        if inconsistent:
            raise HubError(f"{path}: {inconsistent[0]} does not match its manifest; nothing was restored")
        # Copy the rows, after storing again what a concurrent gc has deleted.
        with database.write() as session:
            _require_empty(session, database)
            _put_blobs(tar, {sha256 for sha256 in files if not blobs.holds(sha256)}, blobs, path, None)
            with source.read() as rows:
                copy_rows(rows, session)
            recount(session)


def _require_empty(session: Session, database: Database) -> None:
    if counts := count_contents(session):
        contents = " and ".join(f"{count} {name}" for name, count in counts.items())
        raise HubError(
            f"the hub in {database.name} is not empty ({contents}): set KCARD_HOME to a new folder, or "
            "KCARD_DATABASE_URL to a new database"
        )


@contextmanager
def _open_backup(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, mode="r:") as tar:
            yield tar
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except tarfile.TarError as error:
        raise HubError(f"{path} is not a complete kcard backup: {error}") from error


def _read_sums(tar: tarfile.TarFile, path: Path) -> dict[str, str]:
    """Return the sha256 of every file in the backup, by name. Raises HubError for anything but these regular files."""
    first = tar.next()
    if first is None or first.name != SUMS or not first.isreg() or first.size > LONGEST_SUMS:
        raise HubError(f"{path} is not a kcard backup: it does not start with {SUMS}")
    stream = tar.extractfile(first)
    try:
        text = "" if stream is None else stream.read().decode("ascii")
    except UnicodeDecodeError:
        raise HubError(f"{path} is not a kcard backup: {SUMS} is not text") from None
    lines = [LINE.fullmatch(line) for line in text.splitlines()]
    listed = {match[2]: match[1] for match in lines if match is not None}
    if None in lines or any(name != DATABASE and name != blob_name(sha) for name, sha in listed.items()):
        raise HubError(f"{path} is not a kcard backup: its {SUMS} lists other files than a hub's")
    members = [m.name if m.isreg() else f"{m.name} (not a file)" for m in tar if m.name != SUMS]
    for name in members:
        if name not in listed:
            raise HubError(f"{path} is not a kcard backup: it contains {name!r}, which {SUMS} does not list")
    if len(members) != len(listed):
        raise HubError(
            f"{path} is not a complete kcard backup: it has {len(members)} of the {len(listed)} files in {SUMS}"
        )
    return listed


@contextmanager
def _open_member(tar: tarfile.TarFile, name: str) -> Iterator[Readable]:
    stream = tar.extractfile(name)
    assert stream is not None  # a regular file, by _sums
    with stream:
        yield stream


def _put_blobs(
    tar: tarfile.TarFile, files: set[str], blobs: Blobs, path: Path, report: Report | None
) -> None:
    done = 0
    for sha256 in sorted(files):
        with _open_member(tar, blob_name(sha256)) as stream:
            counted = ProgressStream(stream, done, report)
            try:
                blobs.put_stream(counted, sha256, f"{path}: {blob_name(sha256)}")
            except DamagedCard as error:
                raise HubError(f"{error}; nothing was restored") from error
        done = counted.done


def _new_files(session: Session, repository: int) -> Iterator[tuple[str, Tree]]:
    """Check the paths of each commit, and yield it with the files that its stored tree sets.

    Usually a commit follows its parent, whose tree is then not read again.
    """
    columns = (Commit.sha, Commit.parent, Commit.tree, Commit.delta)
    rows = select(*columns).where(Commit.repository_id == repository).order_by(Commit.id)
    last, tree = None, Tree()
    for row in session.execute(rows.execution_options(yield_per=20)):
        stored, checked_paths = EncodedTree(row.tree, row.delta), set[str]()
        try:
            if row.delta and last is not None and row.parent == last:
                checked_paths.update(tree)
                new = trees.apply_encoded(tree, stored)
            else:
                stored_tree = trees.find_tree(session, repository, row.sha)
                assert stored_tree is not None  # as just read
                tree, new = stored_tree.tree, trees.decode_tree(stored)[0]
            for each in new:
                check_path(each)
            if not new.keys() <= checked_paths:
                check_tree(tree)
        except HubError as error:
            raise HubError(f"commit {row.sha}: {error}") from error
        last = row.sha
        yield row.sha, new


def inconsistent_versions(database: Database) -> list[str]:
    """Return the references of versions whose rows do not match their manifest."""
    query = select_versions().options(undefer(Version.text))
    with database.read() as session:
        own = find_own_namespace(session)
        inconsistent = []
        for row, repository, *_ in session.execute(query.execution_options(yield_per=20)).tuples():
            stored = trees.find_tree(session, row.repository_id, row.commit)
            row.name = card = bare_name(own, repository)
            manifest = row.manifest
            # Cards in other namespaces are called namespace/name.
            has_name = card == manifest.name or "/" in card
            has_digest = hashlib.sha256(row.text.encode()).hexdigest() == row.sha256
            files = {} if stored is None else {path: entry.sha256 for path, entry in stored.tree.items()}
            has_files = {**manifest.files, MANIFEST: row.sha256}.items() <= files.items()
            if not (has_name and has_digest and has_files):
                inconsistent.append(f"{card}@v{row.number}")
        return sorted(inconsistent)
