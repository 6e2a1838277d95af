"""Uploads that are in no commit yet, their parts, and the verdicts on their content.

Knowing the sha256 of a blob gives no access to it: an account may use its own recent uploads, and files of repositories
that it may download.
"""

import hashlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from kcard.batching import batched
from kcard.hub.accounts import Identity
from kcard.hub.checks.content import RULES, ContentVerdict
from kcard.hub.db.models import Holding, Reservation, StoredVerdict, Upload, now
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Invalid
from kcard.hub.permissions import find_usable_blobs, require_write_now
from kcard.hub.quotas import reduce_reservation, require_owner, require_quota
from kcard.hub.storage import BUFFER, Blobs, discard, try_lock

# Multipart uploads of large files; each request may reach another worker.
#
# Parts are complete files, joined into a new file that is then hashed, so that sending a part again can't change a file
# that was checked.

STALE_SECONDS = 24 * 3600


class Parts:
    """The uploaded parts, at `root`/UPLOAD/NUMBER; UPLOAD names an account, a repository and a file."""

    def __init__(self, root: Path, database: Database) -> None:
        self._root, self._database = root, database

    def drop(self, upload: str, number: int) -> None:
        """Delete a part, if it exists, before it is sent again."""
        with self._database.write() as session:
            (self._root / upload / str(number)).unlink(missing_ok=True)
            here = (Reservation.upload == upload, Reservation.number == number)
            session.execute(delete(Reservation).where(*here))

    def put(self, upload: str, number: int, part: Path, reservation: int | None = None) -> None:
        """Store a part, which is moved. Its reservation lasts until the file is complete.

        Raises Conflict if another request has stored it meanwhile, or the reservation has expired.
        """
        path = self._root / upload / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._database.write() as session:
            reserved = None if reservation is None else session.get(Reservation, reservation)
            if reserved is not None:
                reserved.upload, reserved.number, reserved.expires = upload, number, None
            if path.exists() or (reservation is not None and reserved is None):
                raise Conflict(f"part {number} is being sent by another request: send it again")
            part.replace(path)

    def join(self, upload: str, count: int, sha256: str, target: Path) -> int:
        """Join parts 1 to `count` into a new file, flush it, and return its size in bytes. `discard` deletes the parts.

        Raises Invalid if a part is missing, or if the file has another sha256 and must be sent again; Conflict if
        another request joins them.
        """
        digest, folder = hashlib.sha256(), self._root / upload
        with try_lock(folder) as alone:
            if not alone and folder.exists():
                raise Conflict(f"the parts of {sha256[:12]}… are being joined: try again later")
            try:
                with target.open("xb") as whole:
                    for number in range(1, count + 1):
                        with (folder / str(number)).open("rb") as part:
                            while block := part.read(BUFFER):
                                digest.update(block)
                                whole.write(block)
                    whole.flush()
                    os.fsync(whole.fileno())
                    size = whole.tell()
            except FileNotFoundError:
                raise Invalid(f"part {number} of {sha256[:12]}… is missing: send it again") from None
        if digest.hexdigest() != sha256:
            self.discard(upload)
            raise Invalid(
                f"the parts have sha256 {digest.hexdigest()[:12]}…, expected {sha256[:12]}…: send them again"
            )
        return size

    def discard(self, upload: str) -> None:
        """Delete the parts of an upload."""
        with self._database.write() as session:
            discard(self._root / upload)
            session.execute(delete(Reservation).where(Reservation.upload == upload))

    def collect(self, *, dry_run: bool = False) -> list[tuple[Path, int]]:
        """Delete the parts of files to which nothing was added for a day; return paths and sizes."""
        before = time.time() - STALE_SECONDS
        folders = self._root.iterdir() if self._root.is_dir() else ()
        old = [folder for folder in folders if folder.stat().st_mtime < before]
        removed = []
        for folder in old:
            size = 0
            for part in folder.iterdir():
                with suppress(FileNotFoundError):  # joined just now
                    size += part.stat().st_size
            removed.append((folder, size))
        if not dry_run:
            for folder in old:
                self.discard(folder.name)
        return removed


class Uploads:
    """Uploads that are in no commit yet, which gc keeps for a while. `quota`: the default quota of a namespace.

    They are charged to the namespace of the repository that they are uploaded for; without a repository, to nobody.
    """

    def __init__(self, database: Database, blobs: Blobs, *, quota: int | None = None) -> None:
        self._database, self._blobs, self._quota = database, blobs, quota

    def store(
        self,
        identity: Identity,
        path: Path,
        sha256: str,
        size: int,
        *,
        repository_id: int | None = None,
        reservation: int | None = None,
        parts: str | None = None,
    ) -> None:
        """Store a complete file as the account's upload. `path` is moved.

        It is charged instead of its reservation and of its parts. Raises TooLarge.
        """
        self.record(identity, {sha256: size}, repository_id, reservation=reservation, parts=parts)
        self._blobs.place(path, sha256, size)

    def store_all(
        self, identity: Identity, files: Sequence[tuple[Path, str, int]], *, repository_id: int | None = None
    ) -> None:
        """Store complete files (path, sha256, size) as the account's uploads. The paths are moved. Raises TooLarge."""
        self.record(identity, {sha256: size for _, sha256, size in files}, repository_id)
        for path, sha256, size in files:
            self._blobs.place(path, sha256, size)

    def record(
        self,
        identity: Identity,
        sizes: Mapping[str, int],
        repository_id: int | None = None,
        *,
        reservation: int | None = None,
        parts: str | None = None,
    ) -> None:
        """Record uploads by sha256, before their blobs are placed: gc keeps blobs that a row names.

        Raises TooLarge, and as `require_write_now`.
        """
        with self._database.write() as session:
            owner = None
            if repository_id is not None:
                require_write_now(session, identity, repository_id)
                owner = require_owner(session, repository_id)
            if reservation is not None:
                reduce_reservation(session, reservation, sum(sizes.values()))
            if parts is not None:
                session.execute(delete(Reservation).where(Reservation.upload == parts))
            mine = (
                Upload.account_id == identity.account_id,
                Upload.repository_id.is_not_distinct_from(repository_id),
                Upload.sha256.in_(sizes),
            )
            at = now()
            existing = set(
                session.scalars(update(Upload).where(*mine).values(at=at).returning(Upload.sha256))
            )
            whose = {
                "account_id": identity.account_id,
                "repository_id": repository_id,
                "namespace_id": owner,
            }
            new = [(sha256, size) for sha256, size in sizes.items() if sha256 not in existing]
            session.add_all(Upload(sha256=sha256, size=size, at=at, **whose) for sha256, size in new)
            if owner is not None:
                require_quota(session, owner, self._quota)

    def find_usable_size(self, identity: Identity, sha256: str) -> int | None:
        """Return the size of a blob that the identity uploaded or may download; None: no such blob."""
        return self.find_usable(identity, [sha256]).get(sha256)

    def find_usable(self, identity: Identity, sha256s: Collection[str]) -> dict[str, int]:
        """Return the sizes of those blobs that the identity uploaded or may download."""
        with self._database.read() as session:
            sizes = find_usable_blobs(session, identity, sha256s)
        return {sha256: size for sha256, size in sizes.items() if self._blobs.holds(sha256)}


def delete_committed(session: Session, account_id: int, repository_id: int, sha256s: Collection[str]) -> None:
    """Delete the rows of uploads that the account has just committed to the repository."""
    here = or_(Upload.repository_id == repository_id, Upload.repository_id.is_(None))
    mine = (Upload.account_id == account_id, here, Upload.sha256.in_(sha256s))
    session.execute(delete(Upload).where(*mine))


# Verdicts of checks, stored so that no content is checked twice for the same form by the same rules.

# The sha256 of the content, and the form that was required.
VerdictKey: TypeAlias = tuple[str, str]
DIGESTS_PER_QUERY = 500


class Verdicts:
    """The stored verdicts of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, keys: Collection[VerdictKey]) -> dict[VerdictKey, ContentVerdict]:
        """Return the stored verdicts for these keys, and perhaps on the same content for other forms."""
        digests, results = sorted({sha256 for sha256, _ in keys}), dict[VerdictKey, ContentVerdict]()
        with self._database.read() as session:
            for batch in batched(digests, DIGESTS_PER_QUERY):
                here = (StoredVerdict.sha256.in_(batch), StoredVerdict.rules == RULES)
                for row in session.scalars(select(StoredVerdict).where(*here)):
                    results[row.sha256, row.form] = ContentVerdict(row.refusal, row.reason)
        return results

    def store(self, new: Mapping[VerdictKey, ContentVerdict]) -> None:
        """Store verdicts, replacing earlier ones."""
        with self._database.write() as session:
            for (sha256, form), verdict in new.items():
                session.merge(StoredVerdict(sha256=sha256, form=form, rules=RULES, **vars(verdict)))


def delete_stale_verdicts(session: Session) -> None:
    """Delete the verdicts on content that is in no repository and no upload."""
    named = select(Holding.sha256).union(select(Upload.sha256))
    session.execute(delete(StoredVerdict).where(StoredVerdict.sha256.not_in(named)))
