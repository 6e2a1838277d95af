"""A shared hub's repositories without its server: accounts, files, commits, rows and exams, in a line each."""

import hashlib
import json
import os
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, func, select
from sqlalchemy.orm import Session

from kcard.errors import HubError
from kcard.hub.accounts import Accounts, Identity
from kcard.hub.db.models import Account, Commit, Holding, Ref, Repository, Role, Upload
from kcard.hub.db.session import Database
from kcard.hub.history import Commits, Refs
from kcard.hub.listing import Listing
from kcard.hub.publications import Publications
from kcard.hub.registry import Hub
from kcard.hub.repositories import Repositories
from kcard.hub.search import SearchIndex
from kcard.hub.storage import partial_folder
from kcard.hub.uploads import Uploads
from kcard.hub.values import Add, Entry, Operation
from kcard.manifest import MANIFEST, Manifest, seal
from tests.disks import file_size_limit

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
            self.uploads.store(self.who(owner), scratch / "file", entry.sha256, entry.size)
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
            Refs(database, quota=QUOTA),
            Listing(database, SearchIndex()),
            Uploads(database, blobs),
            Publications(database, blobs, exam_required=exam_required),
        )
    finally:
        database.close()


def in_child(work: Callable[[], object]) -> int:
    """Do the work in a child process, which has what is imported here; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 (the child ends here)
        traceback.print_exc()
    finally:
        os._exit(code)


def refused_by_the_disk(work: Callable[[], object], largest: int) -> str:
    """The HubError of work in a process that can't write more bytes than that into a file."""
    with tempfile.NamedTemporaryFile("r") as message:

        def limited() -> None:
            try:
                with file_size_limit(largest):
                    work()
            except HubError as error:
                Path(message.name).write_text(str(error), encoding="utf-8")

        assert in_child(limited) == 0
        return message.read()


def seal_card(
    folder: Path, name: str, text: str = "", files: Mapping[str, bytes] | None = None, **fields: Any
) -> Path:
    """A folder with a card of one file and of these."""
    content = {"config.json": f"{name} {text}".encode(), **(files or {})}
    for path, file in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(file)
    seal(folder, replace(Manifest(name=name, description="Tumours"), **fields))
    return folder


def sealed(content: Mapping[str, bytes], **fields: Any) -> dict[str, bytes]:
    """The files of a card, with a manifest that lists them."""
    digests = {path: hashlib.sha256(file).hexdigest() for path, file in content.items()}
    manifest = replace(Manifest(name="onco", description="Tumours", files=digests), **fields)
    return {**content, MANIFEST: manifest.to_json().encode()}


def recount(session: Session) -> None:
    """Count everything again, from the rows."""
    used: dict[int, int] = Counter()
    for repository in session.scalars(select(Repository)):
        stored = select(Commit.tree, Commit.title, Commit.message).where(
            Commit.repository_id == repository.id
        )
        messages = select(Ref.message).where(Ref.repository_id == repository.id)
        size = sum(len(message.encode()) for message in session.scalars(messages))
        for tree, title, message in session.execute(stored):
            size += len(tree) + len(title.encode()) + len(message.encode())
        repository.tree_bytes = size
        used[repository.namespace_id] += size
        for holding in session.scalars(select(Holding).where(Holding.repository_id == repository.id)):
            holding.namespace_id = repository.namespace_id
    session.flush()
    for account, _, size in session.execute(
        select(Holding.namespace_id, Holding.sha256, Holding.size).distinct()
    ):
        used[account] += size
    for owner in session.scalars(select(Account)):
        owner.used = used[owner.id]
    session.flush()


def counted(database: Database) -> dict[str, int]:
    """The committed bytes of each account, by the counter, which must be the sum."""
    counters = select(Account.name, Account.used)
    of_holdings = select(Holding.repository_id, Holding.sha256, Holding.namespace_id)
    trees = select(Repository.id, Repository.tree_bytes)
    with database.write() as connection:
        before = [set(connection.execute(query).tuples()) for query in (counters, trees, of_holdings)]
        recount(connection)
        after = [set(connection.execute(query).tuples()) for query in (counters, trees, of_holdings)]
    assert before == after
    return dict(before[0])


def pending_bytes(database: Database, account_id: int) -> int:
    """The bytes of the account's uploads that are in no commit."""
    with database.read() as session:
        return session.scalar(select(func.sum(Upload.size)).where(Upload.account_id == account_id)) or 0


def hold(database: Database, owner: int, name: str, *files: tuple[str, int]) -> None:
    """A repository whose commits name these blobs."""
    with database.write() as session:
        repository = Repository(type="model", namespace_id=owner, name=name, folded=name.lower())
        session.add(repository)
        session.flush()
        for sha256, size in files:
            session.add(Holding(repository_id=repository.id, sha256=sha256, size=size))
        session.flush()
        recount(session)


QUESTIONS = 10


def exam(card: str, factuality: object = None, *, recall: float = 0.9, corpus_sha256: str = "") -> bytes:
    """The exam.json of a card, with this mean factuality; None: not measured."""
    own = {
        "sha256": corpus_sha256,
        "questions": QUESTIONS,
        "questions_sha256": "ab" * 32,
        "recall": _mean(recall),
        "factuality": None
        if factuality is None
        else {"scores": [factuality] * QUESTIONS, "mean": _mean(factuality)},
    }
    evidence = {} if factuality is None else {"evidence": "atlas", "evidence_sha256": "cd" * 32}
    return json.dumps({"format": 2, "card": card, "own": own, **evidence}).encode()


def _mean(value: object) -> dict[str, object]:
    if not isinstance(value, int | float):
        return {"mean": value, "low": 0.0, "high": 1.0}
    return {"mean": value, "low": max(0.0, value - 0.1), "high": min(1.0, value + 0.1)}
