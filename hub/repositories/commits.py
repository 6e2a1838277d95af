"""Commits of a repository, prepared without a transaction and written in a short one."""

from collections.abc import Sequence
from typing import TypeAlias

from sqlalchemy import CTE, ColumnElement, Connection, literal, select

from kcard.errors import HubError
from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.quotas import require_quota
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import commits, repositories
from kcard.hub.refusals import Invalid, NotThere, WrongParent
from kcard.hub.repositories import card_metadata, history, readable, rows, trees, uploads, usage
from kcard.hub.repositories.history import Draft
from kcard.hub.repositories.stored_trees import StoredTree
from kcard.hub.repositories.values import MAIN, Add, Commit, Entry, Operation, Repository
from kcard.hub.store.blobs import Blobs

__all__ = ["Commits"]

Found: TypeAlias = list[Commit]  # `list` is a method below
TITLE, MESSAGE = 500, 20_000
# How often to retry a commit without a parent after a concurrent one.
ATTEMPTS = 100
DEEPEST = 10_000  # commits before a page of the history; walking them takes 30 ms


class Commits:
    """The commits of a hub's repositories. `quota`: the default quota of a namespace in bytes."""

    def __init__(self, database: Database, blobs: Blobs, *, quota: int | None = None) -> None:
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
        """Commit the operations to a branch, all of them or none.

        `parent` is the expected head of the branch; None: any. Every added entry must be an upload of this account,
        or in a repository whose files it may download. Raises WrongParent, NotThere (branch, or an entry to delete or
        copy), Invalid (paths, a large file that was not uploaded), TooLarge (files, quota, metadata).
        """
        _check_text(title, message)
        for _ in range(ATTEMPTS):
            head = self._head(repository, branch, parent)
            before = self._stored_tree(repository, head)
            tree = trees.after(before.tree, operations, lambda c: self.tree(repository, c), head)
            draft = history.prepare(str(repository.id), before, tree, title, message, identity.name)
            shown = card_metadata.read(tree, self._blobs, before.tree) if branch == MAIN else None
            with self._database.write() as connection:
                if history.head(connection, repository.id, branch) != head:
                    continue  # a concurrent commit: try again
                self._write(connection, repository, branch, draft, operations, identity)
                if shown is not None:
                    sha, at = draft.commit.sha, draft.commit.date
                    name = _name(connection, repository)
                    card_metadata.write(connection, repository.id, name, shown, sha=sha, at=at)
            return draft.commit
        raise WrongParent(f"too many concurrent commits to branch {branch!r} of {repository.name}: try again")

    def _head(self, repository: Repository, branch: str, parent: str | None) -> str:
        with self._database.read() as connection:
            head = history.head(connection, repository.id, branch)
        if head is None:
            raise NotThere("revision", f"branch {branch!r} not found in {repository.name}: create it first")
        if parent is not None and not head.startswith(parent):
            raise WrongParent(
                f"branch {branch!r} of {repository.name} is at {head}, not {parent}: fetch the new commits, then retry"
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
        unknown = added.keys() - readable.usable(connection, identity, added).keys()
        for entry in (added[sha256] for sha256 in sorted(unknown)):
            self._refuse_unknown(entry)
        history.write(connection, repository.id, branch, draft)
        history.hold(connection, repository.id, added)
        uploads.forget(connection, identity.account_id, repository.id, added)
        require_quota(connection, usage.namespace(connection, repository.id), self._quota)

    def _refuse_unknown(self, entry: Entry) -> None:
        if entry.lfs:  # the same message if other accounts have it
            raise Invalid(f"{entry.path}: no upload with sha256 {entry.sha256}: upload the file first")
        if not self._blobs.holds(entry.sha256):
            raise HubError(f"{entry.path} expired before it was committed: commit it again")

    def get(self, repository: Repository, sha: str) -> Commit:
        """The commit of that sha. Raises NotThere."""
        query = select(*rows.COMMIT_COLUMNS).where(*_here(repository, sha))
        with self._database.read() as connection:
            found = connection.execute(query).one_or_none()
        if found is None:
            raise history.no_commit(repository, sha)
        return rows.commit(found)

    def list(self, repository: Repository, sha: str, page: int = 0, size: int = 50) -> Found:
        """A page of the history, starting with the commit; pages count from 0.

        Raises Invalid for a page that starts after DEEPEST commits: start with a later commit.
        """
        if page * size > DEEPEST:
            raise Invalid(
                f"page {page} starts after {page * size} commits, the limit is {DEEPEST}: follow the Link header"
            )
        line = _line(repository, sha, (page + 1) * size)
        query = (
            select(*rows.COMMIT_COLUMNS)
            .join(line, commits.c.sha == line.c.sha)
            .where(commits.c.repository_id == repository.id, line.c.depth >= page * size)
            .order_by(line.c.depth)
        )
        with self._database.read() as connection:
            found = [rows.commit(row) for row in connection.execute(query)]
            if not found and connection.scalar(select(commits.c.id).where(*_here(repository, sha))) is None:
                raise history.no_commit(repository, sha)
        return found

    def tree(self, repository: Repository, sha: str) -> dict[str, Entry]:
        """The files of a commit by path, sorted. Raises NotThere."""
        return self._stored_tree(repository, sha).tree

    def _stored_tree(self, repository: Repository, sha: str) -> StoredTree:
        with self._database.read() as connection:
            return history.stored_tree(connection, repository, sha)


def _line(repository: Repository, sha: str, length: int) -> CTE:
    """A commit and its ancestors, up to this number of commits."""
    columns = (commits.c.sha, commits.c.parent)
    line = (
        select(*columns, literal(0).label("depth")).where(*_here(repository, sha)).cte("line", recursive=True)
    )
    above = (commits.c.repository_id == repository.id, commits.c.sha == line.c.parent)
    return line.union_all(select(*columns, line.c.depth + 1).where(*above, line.c.depth + 1 < length))


def _check_text(title: str, message: str) -> None:
    if not title.strip():
        raise Invalid("a commit needs a title: summarise the change in one line")
    if len(title) > TITLE or len(message) > MESSAGE:
        raise Invalid(f"commit text too long: a title has at most {TITLE} characters, a message {MESSAGE}")


def _here(repository: Repository, sha: str) -> tuple[ColumnElement[bool], ...]:
    return commits.c.repository_id == repository.id, commits.c.sha == sha


def _name(connection: Connection, repository: Repository) -> str:
    """The repository's current name: it may have been moved."""
    return str(connection.execute(select(repositories.c.name).where(_is(repository))).scalar_one())


def _is(repository: Repository) -> ColumnElement[bool]:
    return repositories.c.id == repository.id
