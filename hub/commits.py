"""Commits to repositories, and the metadata of cards in them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, literal, select, update

from kcard.errors import CardError, HubError
from kcard.hub import history, permissions, rows, search_index, trees, uploads
from kcard.hub.accounts import Identity, require_quota
from kcard.hub.checks import metadata
from kcard.hub.checks.metadata import MOST_NODES
from kcard.hub.db.models import commits, repositories
from kcard.hub.db.session import Database
from kcard.hub.errors import Invalid, NotThere, WrongParent
from kcard.hub.rows import COMMIT_COLUMNS
from kcard.hub.storage import Blobs
from kcard.hub.trees import StoredTree
from kcard.hub.values import MAIN, Add, Commit, Entry, Operation, Repository
from kcard.manifest import MANIFEST, Manifest

__all__ = ["README", "CardMetadata", "Commits", "describe_card", "manifest", "read", "text", "write_metadata"]


# The metadata of a repository: from the README.md of its branch main, with derived tags.

README = "README.md"
# Bytes that are read of a README.md or a manifest.
LONGEST = 4_000_000


@dataclass(frozen=True)
class CardMetadata:
    """The metadata that a repository shows and that searches read."""

    card: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    pipeline_tag: str | None = None
    library: str | None = None
    size: int = 0


def read(tree: Mapping[str, Entry], blobs: Blobs, before: Mapping[str, Entry] | None = None) -> CardMetadata:
    """Return the metadata of a tree. Raises Invalid for an unreadable README.md. Reads blobs: not for transactions.

    With the tree of its parent, `before`, raises TooLarge if README.md or the manifest is new and exceeds the limits;
    older ones are read whatever their size.
    """
    readme = text(blobs, tree[README]) if README in tree else ""
    card_manifest = manifest(tree, blobs)
    if card_manifest is not None and before is not None and tree[MANIFEST] != before.get(MANIFEST):
        metadata.check_manifest(card_manifest)
    limited = before is not None and tree.get(README) != before.get(README)
    return describe_card(tree, readme, card_manifest, MOST_NODES if limited else None)


def describe_card(
    tree: Mapping[str, Entry], readme: str, manifest: Manifest | None, most: int | None = None
) -> CardMetadata:
    """Return the metadata of a tree with this README.md and manifest. Raises Invalid for an unreadable README.md.

    `most`: keys and values of its metadata; None: any number.
    """
    card = metadata.read(readme, most)[0]
    tags = metadata.tags(card, tree, manifest)
    return CardMetadata(
        card, tags, metadata.pipeline_tag(card), metadata.library(card, tree), trees.size(tree)
    )


def manifest(tree: Mapping[str, Entry], blobs: Blobs) -> Manifest | None:
    """Return the manifest of a tree; None if missing or invalid."""
    if MANIFEST not in tree:
        return None
    try:
        return Manifest.from_json(text(blobs, tree[MANIFEST]))
    except CardError:
        return None  # drafts may be invalid; publishing reports the error


def text(blobs: Blobs, entry: Entry) -> str:
    """Return a file as text; invalid UTF-8 is replaced."""
    with blobs.open(entry.sha256) as stream:
        content: bytes = stream.read(LONGEST)
    return content.decode(errors="replace")


def write_metadata(
    connection: Connection,
    repository_id: int,
    name: str,
    card_metadata: CardMetadata,
    *,
    sha: str,
    at: datetime,
) -> None:
    """Set the metadata of a repository, as of that commit of main."""
    values = {
        "head": sha,
        "modified": at,
        "card": json.dumps(card_metadata.card, default=str, ensure_ascii=False),
        "tags": json.dumps(card_metadata.tags, ensure_ascii=False),
        "pipeline_tag": card_metadata.pipeline_tag,
        "library": card_metadata.library,
        "size": card_metadata.size,
    }
    connection.execute(update(repositories).where(repositories.c.id == repository_id).values(values))
    search_index.put_terms(connection, repository_id, name, card_metadata.tags)
    search_index.put_rows(connection, repository_id)


CommitList: TypeAlias = list[Commit]  # `list` is a method below
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
        if not title.strip():
            raise Invalid("a commit needs a title: summarise the change in one line")
        if len(title) > TITLE or len(message) > MESSAGE:
            raise Invalid(
                f"commit text too long: a title has at most {TITLE} characters, a message {MESSAGE}"
            )
        for _ in range(ATTEMPTS):
            with self._database.read() as connection:
                head = history.head(connection, repository.id, branch)
            if head is None:
                raise NotThere(
                    "revision", f"branch {branch!r} not found in {repository.name}: create it first"
                )
            if parent is not None and not head.startswith(parent):
                raise WrongParent(
                    f"branch {branch!r} of {repository.name} is at {head}, not {parent}: fetch the new commits, "
                    "then retry"
                )
            before = self._stored_tree(repository, head)
            tree = trees.apply_operations(before.tree, operations, lambda c: self.tree(repository, c), head)
            draft = history.prepare(str(repository.id), before, tree, title, message, identity.name)
            metadata_of_main = read(tree, self._blobs, before.tree) if branch == MAIN else None
            with self._database.write() as connection:
                if history.head(connection, repository.id, branch) != head:
                    continue  # a concurrent commit: try again
                added = {o.entry.sha256: o.entry for o in operations if isinstance(o, Add)}
                unknown = added.keys() - permissions.usable(connection, identity, added).keys()
                for entry in (added[sha256] for sha256 in sorted(unknown)):
                    if entry.lfs:  # the same message if other accounts have it
                        raise Invalid(
                            f"{entry.path}: no upload with sha256 {entry.sha256}: upload the file first"
                        )
                    if not self._blobs.holds(entry.sha256):
                        raise HubError(f"{entry.path} expired before it was committed: commit it again")
                history.write(connection, repository.id, branch, draft)
                history.hold(connection, repository.id, added)
                uploads.forget(connection, identity.account_id, repository.id, added)
                require_quota(connection, uploads.namespace(connection, repository.id), self._quota)
                if metadata_of_main is not None:
                    sha, at = draft.commit.sha, draft.commit.date
                    # The repository may have been moved: its current name counts.
                    here = select(repositories.c.name).where(repositories.c.id == repository.id)
                    name = str(connection.execute(here).scalar_one())
                    write_metadata(connection, repository.id, name, metadata_of_main, sha=sha, at=at)
            return draft.commit
        raise WrongParent(f"too many concurrent commits to branch {branch!r} of {repository.name}: try again")

    def get(self, repository: Repository, sha: str) -> Commit:
        """Return the commit of that sha. Raises NotThere."""
        query = select(*COMMIT_COLUMNS).where(*_here(repository, sha))
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise history.no_commit(repository, sha)
        return rows.commit(row)

    def list(self, repository: Repository, sha: str, page: int = 0, size: int = 50) -> CommitList:
        """Return a page of the history, starting with the commit; pages count from 0.

        Raises Invalid for a page that starts after DEEPEST commits: start with a later commit.
        """
        if page * size > DEEPEST:
            raise Invalid(
                f"page {page} starts after {page * size} commits, the limit is {DEEPEST}: follow the Link header"
            )
        # A commit and its ancestors, up to the end of the page.
        columns = (commits.c.sha, commits.c.parent)
        start = select(*columns, literal(0).label("depth")).where(*_here(repository, sha))
        line = start.cte("line", recursive=True)
        above = (commits.c.repository_id == repository.id, commits.c.sha == line.c.parent)
        more = select(*columns, line.c.depth + 1).where(*above, line.c.depth + 1 < (page + 1) * size)
        line = line.union_all(more)
        query = (
            select(*COMMIT_COLUMNS)
            .join(line, commits.c.sha == line.c.sha)
            .where(commits.c.repository_id == repository.id, line.c.depth >= page * size)
            .order_by(line.c.depth)
        )
        with self._database.read() as connection:
            ancestors = [rows.commit(row) for row in connection.execute(query)]
            if (
                not ancestors
                and connection.scalar(select(commits.c.id).where(*_here(repository, sha))) is None
            ):
                raise history.no_commit(repository, sha)
        return ancestors

    def tree(self, repository: Repository, sha: str) -> dict[str, Entry]:
        """Return the files of a commit by path, sorted. Raises NotThere."""
        return self._stored_tree(repository, sha).tree

    def _stored_tree(self, repository: Repository, sha: str) -> StoredTree:
        with self._database.read() as connection:
            return history.stored_tree(connection, repository, sha)


def _here(repository: Repository, sha: str) -> tuple[ColumnElement[bool], ...]:
    return commits.c.repository_id == repository.id, commits.c.sha == sha
