"""A shared hub's repositories without its server: accounts, files and commits, in a line each."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from kcard.hub.accounts import Accounts, Identity
from kcard.hub.db.models import Commit, Repository, Role
from kcard.hub.history import Commits, Refs
from kcard.hub.publications import Publications
from kcard.hub.registry import Hub
from kcard.hub.repositories import Listing, Repositories
from kcard.hub.storage import partial_folder
from kcard.hub.uploads import Uploads
from kcard.hub.values import Add, Entry, Operation
from kcard.manifest import Manifest, seal

__all__ = ["Stand", "opened", "recorded_statements", "seal_card", "stand"]

QUOTA = 100_000


@contextmanager
def recorded_statements() -> Iterator[list[str]]:
    """The SQL statements that this process sends to any database during the block."""
    statements: list[str] = []

    def record(*arguments: Any) -> None:
        statements.append(arguments[2])

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", record)


@dataclass(frozen=True)
class Stand:
    """The rooms of a shared hub, with users ada, eve, and root, who administers the hub."""

    registry: Hub
    accounts: Accounts
    repositories: Repositories
    commits: Commits
    refs: Refs
    listing: Listing
    uploads: Uploads
    publications: Publications

    def who(self, name: str, **organisations: Role) -> Identity:
        account = self.accounts.get(name)
        scope: Role = "admin" if account.admin else "write"
        return Identity(account.id, name, account.admin, scope, organisations=organisations)

    def make(self, name: str, *, private: bool = False) -> Repository:
        owner = name.partition("/")[0]
        id_ = self.accounts.get(owner).id
        return self.repositories.create("model", id_, name, private=private, by=self.who(owner))

    def sent(self, owner: str, path: str, content: bytes, *, lfs: bool = False) -> Add:
        """A file that the account has just sent."""
        entry = entry_of(path, content, lfs=lfs)
        with partial_folder(self.registry.blobs.partial) as scratch:
            (scratch / "file").write_bytes(content)
            self.uploads.store(self.accounts.get(owner).id, scratch / "file", entry.sha256, entry.size)
        return Add(entry)

    def commit(
        self,
        repository: Repository,
        files: Mapping[str, bytes],
        *others: Operation,
        branch: str = "main",
        parent: str | None = None,
        by: str | None = None,
    ) -> Commit:
        """Send the files and commit them."""
        owner = by or repository.namespace
        added = [self.sent(owner, path, content) for path, content in files.items()]
        return self.commits.add(
            repository,
            branch,
            [*added, *others],
            parent=parent,
            title="change",
            message="",
            identity=self.who(owner),
        )


def entry_of(path: str, content: bytes, *, lfs: bool = False) -> Entry:
    """What a commit says of a file of these bytes."""
    oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return Entry(path, oid, hashlib.sha256(content).hexdigest(), len(content), lfs)


@contextmanager
def stand(home: Path, database_url: str | None = None, *, exam_required: bool = True) -> Iterator[Stand]:
    """A fresh hub in a folder, on SQLite or in an empty PostgreSQL database; its connections are closed at the end."""
    with opened(home, database_url, exam_required=exam_required) as hub:
        for name in ("ada", "eve"):
            hub.accounts.add_user(name)
        hub.accounts.add_user("root", admin=True)
        yield hub


@contextmanager
def opened(home: Path, database_url: str | None = None, *, exam_required: bool = True) -> Iterator[Stand]:
    """A hub that is there; its connections are closed at the end."""
    registry = Hub(home, database_url=database_url)
    database, blobs = registry.database, registry.blobs
    try:
        yield Stand(
            registry,
            Accounts(database),
            Repositories(database, blobs, quota=QUOTA),
            Commits(database, blobs, quota=QUOTA),
            Refs(database),
            Listing(database),
            Uploads(database, blobs),
            Publications(database, blobs, exam_required=exam_required),
        )
    finally:
        database.close()


def seal_card(folder: Path, name: str, text: str = "") -> Path:
    """A folder with a card of one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(f"{name} {text}", encoding="utf-8")
    seal(folder, Manifest(name=name, description="Tumours"))
    return folder
