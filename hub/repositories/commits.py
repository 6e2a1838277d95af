"""Commits of a repository: prepared outside of any transaction, then compared and put down in one short one."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import ColumnElement, Connection, select

from kcard.errors import HubError
from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.quotas import require_room
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import commits, repositories
from kcard.hub.refusals import Invalid, NotThere, WrongParent
from kcard.hub.repositories import card_metadata, history, reading, rows, trees
from kcard.hub.repositories.history import Draft
from kcard.hub.repositories.values import MAIN, Add, Commit, Entry, Operation, Repository

if TYPE_CHECKING:
    from kcard.hub.store.blobs import Blobs

__all__ = ["Commits"]

Found: TypeAlias = list[Commit]  # `list` is a method below
TITLE, MESSAGE = 500, 20_000
# How often a commit that names no parent is prepared anew because another came before it.
ATTEMPTS = 100


class Commits:
    """The commits of a hub's repositories. `quota`: bytes that a namespace may hold where its account says nothing."""

    def __init__(self, database: Database, blobs: "Blobs", *, quota: int | None = None) -> None:
        self._database, self._blobs, self._quota = database, blobs, quota

    def add(
        self,
        repository: Repository,
        branch: str,
        operations: Sequence[Operation],
        *,
        parent: str | None,
        title: str,
        message: str,
        identity: Identity,
    ) -> Commit:
        """Commit the operations on top of a branch, all of them or none.

        `parent` is the commit that the branch must be at; None: whichever it is at. The bytes of every added
        entry are in the store, recorded by Uploads for this account, or held by a repository whose files it may
        have. Raises WrongParent, NotThere (revision, or an entry to be deleted or copied), Invalid (paths, a
        large file that was never uploaded), TooLarge (files, quota).
        """
        _check_text(title, message)
        for _ in range(ATTEMPTS):
            head = self._head(repository, branch, parent)
            tree = trees.after(
                self.tree(repository, head), operations, lambda c: self.tree(repository, c), head
            )
            draft = history.prepare(str(repository.id), head, tree, title, message, identity.name)
            shown = card_metadata.read(tree, self._blobs) if branch == MAIN else None
            with self._database.write() as connection:
                if history.head(connection, repository.id, branch) != head:
                    continue  # someone was faster: look again
                self._write(connection, repository, branch, draft, operations, identity)
                if shown is not None:
                    sha, at = draft.commit.sha, draft.commit.date
                    name = _name(connection, repository)
                    card_metadata.write(connection, repository.id, name, shown, sha=sha, at=at)
            return draft.commit
        raise WrongParent(f"branch {branch!r} of {repository.name} is being written all the time: try again")

    def _head(self, repository: Repository, branch: str, parent: str | None) -> str:
        with self._database.read() as connection:
            head = history.head(connection, repository.id, branch)
        if head is None:
            raise NotThere("revision", f"{repository.name} has no branch {branch!r}: create it first")
        if parent is not None and not head.startswith(parent):
            raise WrongParent(
                f"branch {branch!r} of {repository.name} is at {head}, not at {parent}: look at what came, try again"
            )
        return head

    def _write(
        self,
        connection: Connection,
        repository: Repository,
        branch: str,
        draft: Draft,
        operations: Sequence[Operation],
        identity: Identity,
    ) -> None:
        added = {o.entry.sha256: o.entry for o in operations if isinstance(o, Add)}
        unknown = set(added) - reading.usable(connection, identity, added)
        for entry in (added[sha256] for sha256 in sorted(unknown)):
            self._refuse_unknown(entry)
        history.write(connection, repository.id, branch, draft)
        if history.hold(connection, repository.id, added):
            require_room(connection, _namespace(connection, repository), self._quota)

    def _refuse_unknown(self, entry: Entry) -> None:
        if entry.lfs:  # whether the hub holds it for others is not for this account to know
            raise Invalid(f"{entry.path}: no file with sha256 {entry.sha256} was uploaded: upload it first")
        if not self._blobs.holds(entry.sha256):
            raise HubError(f"{entry.path} was cleaned away before it was committed: commit it again")

    def get(self, repository: Repository, sha: str) -> Commit:
        """The commit of that sha; NotThere where the repository has none such."""
        query = select(*rows.COMMIT_COLUMNS).where(*_here(repository, sha))
        with self._database.read() as connection:
            found = connection.execute(query).one_or_none()
        if found is None:
            raise _no_commit(repository, sha)
        return rows.commit(found)

    def list(self, repository: Repository, sha: str, page: int = 0, size: int = 50) -> Found:
        """A page of the history of a commit, that commit first; pages count from 0."""
        found: Found = []
        parents = select(commits.c.sha, commits.c.parent).where(commits.c.repository_id == repository.id)
        with self._database.read() as connection:
            before = dict(connection.execute(parents).tuples().all())
            if sha not in before:
                raise _no_commit(repository, sha)
            shas = _line(before, sha)[page * size : (page + 1) * size]
            query = select(*rows.COMMIT_COLUMNS).where(commits.c.repository_id == repository.id)
            by_sha = {r.sha: rows.commit(r) for r in connection.execute(query.where(commits.c.sha.in_(shas)))}
        found.extend(by_sha[each] for each in shas)
        return found

    def tree(self, repository: Repository, sha: str) -> dict[str, Entry]:
        """Every file of a commit by its path, sorted; NotThere where the repository has no such commit."""
        with self._database.read() as connection:
            text = connection.scalar(select(commits.c.tree).where(*_here(repository, sha)))
        if text is None:
            raise _no_commit(repository, sha)
        return trees.loads(text)


def _line(before: Mapping[str, str | None], sha: str | None) -> Sequence[str]:
    """A commit and those before it, newest first."""
    line = []
    while sha is not None:
        line.append(sha)
        sha = before.get(sha)
    return line


def _check_text(title: str, message: str) -> None:
    if not title.strip():
        raise Invalid("a commit needs a title: one line that says what changed")
    if len(title) > TITLE or len(message) > MESSAGE:
        raise Invalid(f"a commit's title has at most {TITLE} characters, its message {MESSAGE}: shorten it")


def _here(repository: Repository, sha: str) -> tuple[ColumnElement[bool], ...]:
    return commits.c.repository_id == repository.id, commits.c.sha == sha


def _no_commit(repository: Repository, sha: str) -> NotThere:
    return NotThere("revision", f"{repository.name} has no commit {sha[:64]!r}")


def _name(connection: Connection, repository: Repository) -> str:
    """The repository's name now: it may have been moved since it was looked up."""
    return str(connection.execute(select(repositories.c.name).where(_is(repository))).scalar_one())


def _namespace(connection: Connection, repository: Repository) -> int:
    return int(connection.execute(select(repositories.c.namespace_id).where(_is(repository))).scalar_one())


def _is(repository: Repository) -> ColumnElement[bool]:
    return repositories.c.id == repository.id
